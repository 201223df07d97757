"""A page with pictures from the tables, for people."""

"""A cluster on one machine, to try it and to test it."""

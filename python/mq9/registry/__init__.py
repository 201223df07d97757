"""The agent registry: cards that are found by their words and by their meaning."""

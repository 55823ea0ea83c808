"""Analysis of what nuggets preserve of a text."""

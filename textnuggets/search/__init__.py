"""Comparing and finding texts by their nuggets."""

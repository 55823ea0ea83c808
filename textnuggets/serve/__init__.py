"""Nuggets over HTTP, and a page to look at them."""

"""Decoder-only language models with nuggets in their cache of keys and values."""

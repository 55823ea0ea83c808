"""Corpora as packed documents on disk, and batches of them."""

"""Index of nuggets, and BM25."""

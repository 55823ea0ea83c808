"""Resumable encoding of any number of texts into files."""

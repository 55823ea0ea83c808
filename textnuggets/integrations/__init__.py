"""Adapters to other libraries, one file per library; each needs the extra named after it."""

"""Files, progress, documents and corpora; independent of any model."""

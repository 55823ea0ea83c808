"""Files, progress, documents and corpora: everything that knows no model."""

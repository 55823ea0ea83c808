"""Scripts for maintainers: generated tables and figures, screenshots and shipped models."""

"""Programs to look at and run."""

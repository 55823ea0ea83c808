"""What nuggets of a text keep and know."""

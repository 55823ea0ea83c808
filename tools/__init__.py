"""What maintainers run to make what ships."""

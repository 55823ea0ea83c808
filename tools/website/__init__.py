"""The documentation site: pages that are generated, or that have their home outside `docs`."""

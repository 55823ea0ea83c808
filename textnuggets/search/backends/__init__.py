"""Engines that hold the vectors of an index."""

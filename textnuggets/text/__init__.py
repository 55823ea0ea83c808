"""Strings and files; knows no model."""

"""Weights of the models `reconstruct` and `lm` of textnuggets."""

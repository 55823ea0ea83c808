"""Evaluation of trained models, one module per question of the paper."""

"""Verdicts on the paper's claims, figures, reproduction plans, and a report page of all results."""

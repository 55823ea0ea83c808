"""The paper's claims, figures and plans, and one page of all results."""

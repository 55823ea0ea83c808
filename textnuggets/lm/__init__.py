"""Language modelling with compressed history (the paper's section 6.2)."""

"""Training: recipes, objectives and the Trainer (the paper's sections 3.4 and 4)."""

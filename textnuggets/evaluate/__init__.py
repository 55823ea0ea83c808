"""One file per question the paper asks of a trained model."""

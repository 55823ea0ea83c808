"""Files of any number of texts, encoded and resumed."""

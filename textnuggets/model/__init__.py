"""The paper's section 3: from tokens to nuggets and back."""

"""The paper's section 3: from tokens to nuggets and back."""

from textnuggets.model.reconstruction import Reconstruction, Word

__all__ = ["Reconstruction", "Word"]

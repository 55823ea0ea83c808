"""HTTP API for nuggets, and a web page to explore them."""

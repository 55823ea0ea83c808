"""Routes of the API, one router per group."""

"""The paths of the API, in groups: one router each."""

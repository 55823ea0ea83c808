"""Speed, as ratios measured in one run. See `python -m bench --help`."""

"""Speed benchmarks, as ratios of two sides measured in the same run; see `python -m bench --help`."""

"""`python -m textnuggets`."""

from textnuggets.cli import main

main()

"""`python -m overwatch.cli`, the same as `overwatch`."""

from overwatch.cli import main

main()

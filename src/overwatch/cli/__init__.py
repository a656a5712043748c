"""The command line: each command assembles parts that know nothing of each other.

Exit codes: 0 done, 1 failed with the reason said, 2 bad usage. Every user error names the value and the fix.
"""

from overwatch.cli.main import main

__all__ = ["main"]

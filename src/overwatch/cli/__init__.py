"""The command line: each command assembles parts that know nothing of each other.

Exit codes: 0 done, 1 failed with the reason said, 2 bad usage. Every user error names the value and the fix.
"""

import gc
import os

# Read once, as gRPC's core is loaded: without it, it writes a line for each head of a client's that it cannot
# read, to stderr and past the log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Imports make a hundred thousand objects that stay: to look for garbage among them takes a fifth of the time.
gc.set_threshold(100_000, 20, 50)

from overwatch.cli.main import main  # noqa: E402 only what comes after is faster

__all__ = ["main"]

"""The command line: each command assembles parts that know nothing of each other.

Exit codes: 0 done, 1 failed with the reason printed, 2 bad usage, 130 ended by Ctrl-C. Every user error
names the value and the fix.
"""

import gc
import os

# Read once, as gRPC's core is loaded: without it, it writes a line for each head of a client's that it cannot
# read, to stderr and past the log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Imports make a hundred thousand objects that stay: to look for garbage among them takes a fifth of the time.
gc.set_threshold(100_000, 20, 50)

from overwatch.cli import interrupts  # noqa: E402 only what comes after is faster

with interrupts.ending_at_once():
    from overwatch.cli.main import main

__all__ = ["main"]

"""A machine whose clock is a minute ahead, for each Python program that finds this on its path."""

import sys
import time

AHEAD_S = 60
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + AHEAD_S
time.time_ns = lambda: _time_ns() + AHEAD_S * 1_000_000_000
# What is compiled asks the kernel, whose clock is right: without it, Python writes the records.
sys.modules["overwatch.sdk.rings._compiled"] = None  # type: ignore[assignment]  # as for a module that is not there

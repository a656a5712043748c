"""A machine whose clock is a minute ahead, for each Python program that finds this on its path."""

import time

AHEAD_S = 60
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + AHEAD_S
time.time_ns = lambda: _time_ns() + AHEAD_S * 1_000_000_000

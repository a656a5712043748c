"""The clock of everything that ends by time: leases, tickets, presence, what is remembered for a while.

Rules: a service has one, and compares nothing with the wall clock, which may be set at any time. Must not
know what ends.
"""

import time
from collections.abc import Callable


def elapsing(since_ns: int, elapsed_ns: Callable[[], int] = time.monotonic_ns) -> Callable[[], int]:
    """Nanoseconds that go on from a moment by the monotonic clock, whatever is done to the wall clock.

    >>> clock = elapsing(100, iter([7, 7, 9]).__next__)
    >>> clock(), clock()
    (100, 102)
    """
    began = elapsed_ns()
    return lambda: since_ns + elapsed_ns() - began

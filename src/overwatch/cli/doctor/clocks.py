"""Clocks: does the wall clock run with the monotonic one, and does the kernel say it is synchronised."""

import ctypes
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

from overwatch.cli.doctor.verdict import Verdict, ok, warning

AREA: Final = "clock"
FIRST_NS: Final = 1_735_689_600_000_000_000
"""The first of January 2025: earlier stamps are of a machine that was never told the time."""
LOOK_S: Final = 0.2
MOST_APART_S: Final = 0.05
_UNSYNCHRONISED: Final = 5
_BUFFER: Final = 512
_MAX_ERROR_AT: Final = 24

Clock = Callable[[], int]


def clocks(wall: Clock = time.time_ns, steady: Clock = time.monotonic_ns) -> Iterator[Verdict]:
    """Looks at both for a fifth of a second."""
    begin, since = wall(), steady()
    if begin < FIRST_NS:
        yield warning(AREA, "the wall clock is before 2025", "set it, e.g. timedatectl set-ntp true")
    time.sleep(LOOK_S)
    apart_s = abs((wall() - begin) - (steady() - since)) / 1e9
    if apart_s > MOST_APART_S:
        yield warning(
            AREA,
            f"the wall clock moved {apart_s:.3f} s against the monotonic one within {LOOK_S} s",
            "something sets the clock; let chrony or systemd-timesyncd slew it",
        )
    else:
        yield ok(AREA, "wall clock and monotonic clock run together")
    yield from _kernel()


def _kernel() -> Iterator[Verdict]:
    """What the kernel says of NTP; nothing where it cannot be asked."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return
    buffer = ctypes.create_string_buffer(_BUFFER)
    state = ask(buffer)
    if state < 0:
        return
    (error_us,) = struct.unpack_from("@l", buffer, _MAX_ERROR_AT)
    if state == _UNSYNCHRONISED:
        yield warning(
            AREA,
            "the kernel says that this clock is not synchronised",
            "start chrony or systemd-timesyncd; ages of other machines' data are skewed until then",
        )
    else:
        yield ok(AREA, f"the clock is synchronised, within {error_us / 1000:.0f} ms")

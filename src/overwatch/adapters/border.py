"""The border between a foreign training loop and its telemetry: errors are kept out, nothing is left behind.

Rules: an error is counted, and the first one logged. What waits when the program ends is sent then. Must not
know what is reported.
"""

import atexit
import functools
import logging
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

log: Final = logging.getLogger("overwatch.adapters")

P = ParamSpec("P")
B = TypeVar("B", bound="Bordered")


class Bordered:
    """Something with methods that a training loop calls."""

    failures: int = 0
    """Calls that went wrong; the first one is logged."""


def kept_out(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """A method whose errors never reach its caller."""

    @functools.wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 the border: counted, and training goes on
            self.failures += 1
            if self.failures == 1:
                where = f"{type(self).__name__}.{method.__name__}"
                log.warning("%s: %s: %s; counted, not logged again", where, type(error).__name__, error)

    return call


class Flushed(Protocol):
    """Something that gathers what it reports."""

    def flush(self) -> None:
        """Send what is left."""


_OPEN: Final["WeakSet[Flushed]"] = WeakSet()


def flush_at_exit(one: Flushed) -> None:
    """Have it send what is left when the program ends, if it is still there."""
    _OPEN.add(one)
    _register()


@functools.cache
def _register() -> None:
    """Where there is something to send the SDK has registered before, and closes its runs after this."""
    atexit.register(_flush_all)


def _flush_all() -> None:
    for one in list(_OPEN):
        one.flush()

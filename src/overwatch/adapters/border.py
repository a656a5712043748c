"""The border between a foreign training loop and its telemetry: errors are kept out.

Rules: an error is counted, and the first one logged. Must not know what is reported.
"""

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

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

"""How often `torch.compile` compiled something again while a program trains, and why.

Rules: torch is found, never imported, and no device is read: torch keeps on the host what it compiled. The
first updates are warm-up, in which every shape comes for the first time. Where nothing was ever compiled, or
this torch does not keep it, there is no number. Must not know how it is sent.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from overwatch.catalog.compiling import COMPILE, RECOMPILES
from overwatch.events import Event, LogLine, Severity

WARM_UPDATES: Final = 2
"""Updates of the warm-up: the second one collects with what the first one compiled."""
_MOST: Final = 300
"""Characters of a reason."""


class Recompiles:
    """Counts in this process, from the first update on."""

    def __init__(self, report: Callable[[Event], object]) -> None:
        """`report` takes a line of log for each update that compiled something again, as `run.fact` does."""
        self._report = report
        self._updates = 0
        self._count = 0
        self._seen = {_key(one) for one in _compiled()}

    def values(self) -> dict[str, float]:
        """What to hand to `run.update`; to be called once after each update."""
        compiled = _compiled()
        fresh = [one for one in compiled if _key(one) not in self._seen and one.recompile_reason]
        self._seen = {_key(one) for one in compiled}
        self._updates += 1
        if self._updates > WARM_UPDATES and fresh:
            self._count += len(fresh)
            self._report(_line(fresh))
        return {RECOMPILES.short: float(self._count)} if compiled else {}


def _compiled() -> list[Any]:
    """The newest of what torch compiled, at most 64."""
    newest = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", list)
    return [one for one in newest() if hasattr(one, "recompile_reason")]


def _key(one: Any) -> tuple[object, object]:
    return one.compile_id, one.start_time


def _line(fresh: list[Any]) -> LogLine:
    newest = fresh[-1]
    function, reason = str(newest.co_name)[:_MOST], str(newest.recompile_reason)[:_MOST]
    return LogLine(
        at=time.time_ns(), severity=Severity.INFO, subsystem=COMPILE,
        message=f"compiled again: {function}: {reason}",
        fields={"function": function, "reason": reason, "count": str(len(fresh))},
    )  # fmt: skip

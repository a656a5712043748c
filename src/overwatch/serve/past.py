"""Answers about moments of the past, from what is recorded.

Rules: one that takes long is an error that names how much was read, and is given up; one that nothing is
recorded of names what to configure. Must not know how a recording is read.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from overwatch.serve.answers import BadRequest
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.snapshot.timeline import Timeline, TimelineMark

LONGEST_S: Final = 10.0
"""How long a request for a moment waits."""
ALARMS: Final = frozenset({"warning", "critical"})
NOTHING: Final = (
    "this collector records nothing, so only the newest moment can be shown; add exporter otlp_file to "
    "pipeline 'logs', or open a recording: overwatch web RECORDING"
)
_T = TypeVar("_T")


class Recorded(Protocol):
    """What is recorded. Each raises `ValueError` where it is busy; `None` is that there is no such run."""

    def snapshot(self, run_id: str | None, view: View, at: float) -> "Future[Snapshot | None]":
        """A run as a view shows it at a Unix time."""
        ...

    def history(
        self, run_id: str | None, query: HistoryQuery, at: float | None = None
    ) -> "Future[History | None]":
        """Its past as it was then."""
        ...

    def heat(self, run_id: str | None, query: HeatQuery, at: float | None = None) -> "Future[HeatMap | None]":
        """Its envs or lanes over time, up to then."""
        ...

    def timeline(self, run_id: str | None) -> "Future[Timeline | None]":
        """Which moments there are."""
        ...

    @property
    def read(self) -> float:
        """Which part was looked through so far."""
        ...


class PastAnswers:
    """The recorded as routes want it: with its errors as answers."""

    def __init__(self, recorded: Recorded | None, *, is_all: bool = False) -> None:
        """`is_all`: the recording is all there is, no collector goes on beside it."""
        self._recorded = recorded
        self.is_all = is_all

    @property
    def is_there(self) -> bool:
        """Whether anything is recorded."""
        return self._recorded is not None

    @property
    def late(self) -> BadRequest:
        """The answer where it takes too long."""
        part = 0.0 if self._recorded is None else self._recorded.read
        return BadRequest(503, f"the recording is being read, {part:.0%} so far; ask again in a moment", "at")

    async def snapshot(self, run_id: str | None, view: View, at: float) -> Snapshot:
        """Of a run at a Unix time; raises `BadRequest`."""
        return await self._answer(run_id, lambda recorded: recorded.snapshot(run_id, view, at))

    async def history(self, run_id: str | None, query: HistoryQuery, at: float | None) -> History:
        """The past of a run at a Unix time, or at the end; raises `BadRequest`."""
        return await self._answer(run_id, lambda recorded: recorded.history(run_id, query, at))

    async def heat(self, run_id: str | None, query: HeatQuery, at: float | None) -> HeatMap:
        """Envs or lanes of a run up to a Unix time, or to the end; raises `BadRequest`."""
        return await self._answer(run_id, lambda recorded: recorded.heat(run_id, query, at))

    async def timeline(self, run_id: str | None) -> Timeline:
        """The moments of a run; raises `BadRequest`."""
        return await self._answer(run_id, lambda recorded: recorded.timeline(run_id))

    async def _answer(self, run_id: str | None, request: "Callable[[Recorded], Future[_T | None]]") -> _T:
        recorded = self._recorded
        if recorded is None:
            raise BadRequest(404, NOTHING, "at")
        try:
            async with asyncio.timeout(LONGEST_S):
                found = await asyncio.wrap_future(request(recorded))
        except TimeoutError:
            raise self.late from None
        except (ValueError, OSError) as error:
            raise BadRequest(503, f"the recording cannot be shown: {error}", "at") from error
        if found is None:
            what = "no run" if run_id is None else f"no run {run_id!r}"
            raise BadRequest(
                404, f"there is {what} at this moment; GET /api/v1/timeline lists the moments", "run"
            )
        return found


def live_timeline(history: History, tick: int, *, past: bool) -> Timeline:
    """The moments of a run that a collector still receives, from its past."""
    last = tick / 1e9
    return Timeline(
        run_id=history.run_id,
        first=last if history.since is None else min(history.since, last),
        last=last,
        live=True,
        past=past,
        marks=tuple(
            TimelineMark(
                place=one.since, since=one.since, severity=one.severity, code=one.code, subject=one.subject,
                message=one.message,
            )
            for one in history.moments
            if one.severity in ALARMS
        ),
    )  # fmt: skip

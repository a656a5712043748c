"""Answers about moments of the past, from what is recorded.

Rules: one that takes long is an error that names how much was read, and is given up; one that nothing is
recorded of names what to configure. Must not know how a recording is read.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from overwatch.projection.history import with_closer
from overwatch.serve.answers import BadRequest
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import CLOSE_S, MOST_COLUMNS, History, HistoryQuery, Moment
from overwatch.snapshot.timeline import Timeline, TimelineMark

LONGEST_S: Final = 10.0
"""How long a request for a moment waits."""
ALARMS: Final = frozenset({"warning", "critical"})
NOTHING: Final = (
    "this collector records nothing, so only the newest moment can be shown; add exporter otlp_file to "
    "pipeline 'logs', or open a recording: overwatch web RECORDING"
)
PATIENCE_S: Final = 1.0
"""How long the answer of a live run waits for its recording."""
ARRIVES_S: Final = 1.0
"""Within which what was measured is received, seconds."""
RECORDED_S: Final = 5.0
"""What is older than this is recorded."""
_MOST_CLOSER: Final = 8
"""Ranges of live runs whose samples are kept."""
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
        self._closer: OrderedDict[tuple[str, HistoryQuery], asyncio.Task[History | None]] = OrderedDict()
        """Ranges that were read again, the one that was asked for last at the end."""

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

    async def closer(self, found: History, wanted: HistoryQuery, tick: int) -> History:
        """An answer of a live run with every sample of a range that is over, where that is recorded.

        The answer waits no longer than `PATIENCE_S`; what is read later is there for who asks again.
        """
        if not self.is_there or not _is_coarse(found, wanted, tick / 1e9):
            return found
        key = found.run_id, wanted
        reading = self._closer.pop(key, None) or asyncio.create_task(self._closely(*key))
        self._closer[key] = reading
        while len(self._closer) > _MOST_CLOSER:
            self._closer.popitem(last=False)[1].cancel()
        done, _ = await asyncio.wait((reading,), timeout=PATIENCE_S)
        closer = reading.result() if done and not reading.cancelled() else None
        if done and closer is None:
            self._closer.pop(key, None)
        return found if closer is None else with_closer(found, closer)

    async def _closely(self, run_id: str, wanted: HistoryQuery) -> History | None:
        try:
            # What was measured in the range may have been received after it.
            return await self.history(run_id, wanted, (wanted.until or 0.0) + ARRIVES_S)
        except BadRequest:
            return None

    def close(self) -> None:
        """Give up what is being read."""
        for reading in self._closer.values():
            reading.cancel()

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


def _is_coarse(found: History, wanted: HistoryQuery, now: float) -> bool:
    """Whether a short range that is over was answered by columns of a past that is held for the whole run."""
    since, until = wanted.since, wanted.until
    if since is None or until is None or until - since > CLOSE_S - 1 or until > now - RECORDED_S:
        return False
    return any(one.samples > MOST_COLUMNS and one.each != 1 for one in found.curves)


def live_timeline(history: History, tick: int, shown: Snapshot | None, *, past: bool) -> Timeline:
    """The moments of a run that a collector received, from its past; of one that is over up to its end."""
    marks = tuple(one for one in history.moments if one.severity in ALARMS)
    last, begin = tick / 1e9, history.since
    if shown is None and history.until is not None:
        last = min(last, _second_after(history.until, marks))
    elif shown is not None and shown.link.state in ("ended", "lost") and shown.link.data_age_s is not None:
        last = min(last, _second_after(shown.time - shown.link.data_age_s, marks))
    if begin is None and shown is not None:
        begin = shown.run.started
    return Timeline(
        run_id=history.run_id,
        first=last if begin is None else min(begin, last),
        last=last,
        live=True,
        past=past,
        marks=tuple(
            TimelineMark(
                place=one.since, since=one.since, severity=one.severity, code=one.code, subject=one.subject,
                message=one.message,
            )
            for one in marks
        ),
    )  # fmt: skip


def _second_after(end: float, marks: Iterable[Moment]) -> float:
    """The first whole second at which all is shown: what a run emitted last, and what was found later."""
    return float(math.ceil(max([end, *(one.since for one in marks)])))

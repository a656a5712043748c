"""The reporter that is the flight's own log: a JSON object a line, for a program.

Every line has the run, the hash of its configuration and, once there is one, the trace of the loop's turn.
One line an update has what the trainer reported, steps a second (of all envs: since the last line, over the
last four, since the beginning) and the shares of the phases that ended since the last line. The first is
preceded by what the training takes in memory, as everything is allocated by then.
Rules: on a GPU phases are measured by events of the device, read once it has passed them. Must not know
worlds or algorithms.
"""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TextIO

import msgspec
import structlog
import torch

from overwatch.events import Event, LogLine, NonFiniteSeen, PhaseEnded, Severity
from overwatch_rl.sync_points import sync_point
from overwatch_rl.telemetry.reporter import Silent, plain
from overwatch_rl.types import Rolled

ROLLING: Final = 4
"""Updates of the middle rate."""
_LEVELS: Final = {
    Severity.DEBUG: "debug",
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "error",
}


def flight_logger(stream: TextIO, **bound: object) -> Any:
    """A logger that writes JSON lines to `stream`, each with what is bound."""
    return structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.BoundLogger,
    ).bind(**bound)


class Phases:
    """How long each phase took, by the clock of the device."""

    def __init__(self, device: str) -> None:
        self._is_far = torch.device(device).type == "cuda"
        self._ended: deque[tuple[str, Any, Any]] = deque()

    @contextlib.contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        began = self._mark()
        try:
            yield
        finally:
            self._ended.append((name, began, self._mark()))

    def shares(self) -> dict[str, float]:
        """Share of each phase in those whose end has come since the last call."""
        seconds: Counter[str] = Counter()
        while self._ended and (not self._is_far or self._ended[0][2].query()):
            name, began, ended = self._ended.popleft()
            seconds[name] += began.elapsed_time(ended) / 1e3 if self._is_far else ended - began
        total = sum(seconds.values())
        return {name: round(value / total, 4) for name, value in seconds.items()} if total > 0 else {}

    def _mark(self) -> Any:
        if not self._is_far:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # theirs
        event.record()
        return event


class Rates:
    """Steps a second: since the last mark, over the last four, since the beginning."""

    def __init__(self, now: float) -> None:
        self._first = now
        self._steps = 0
        self._marks: deque[tuple[float, int]] = deque([(now, 0)], maxlen=ROLLING + 1)

    def add(self, steps: int) -> None:
        """So many more."""
        self._steps += steps

    def mark(self, now: float) -> dict[str, float | None]:
        """The three rates; `None` where no time has passed, none of them where nothing was ever stepped."""
        if not self._steps:
            return {}
        self._marks.append((now, self._steps))
        (before, steps), (oldest, fewest) = self._marks[-2], self._marks[0]
        spans = {
            "instant": (now - before, self._steps - steps),
            "rolling": (now - oldest, self._steps - fewest),
            "global": (now - self._first, self._steps),
        }
        return {name: round(done / took, 1) if took > 0 else None for name, (took, done) in spans.items()}


class FlightLog(Silent):
    """Lines of JSON."""

    def __init__(
        self,
        log: Any,
        device: str,
        trace: Callable[[], str],
        *,
        glyphs: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`trace` is the header of W3C Trace Context of the loop's turn, empty without one.

        `glyphs` has a character for each code of an observation; without them what is seen is not logged.
        """
        self._glyphs = glyphs
        self._view: list[str] = []
        self.memory: Callable[[], Mapping[str, int]] | None = None
        """Bytes by part, asked once."""
        self._log = log
        self._trace = trace
        self._clock = clock
        self._phases = Phases(device)
        self._rates = Rates(clock())
        self._update: int | None = None

    def started(self, **facts: object) -> None:
        """Log what begins."""
        self._line("info", "run started", facts)

    def phase(self, name: str) -> contextlib.AbstractContextManager[object]:
        """Measure it."""
        return self._phases.measured(name)

    def rollout(self, rolled: Rolled) -> None:
        """Count the steps of all envs, and keep what the first one sees."""
        self._rates.add(rolled.rewards.numel())
        if self._glyphs and not rolled.seen.is_meta:
            with sync_point("log.view"):
                codes: list[list[int]] = rolled.seen.tolist()
            self._view = ["".join(self._glyphs[code] for code in row) for row in codes]

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """One line, and before the first one what lies in memory."""
        self._update = index
        if self.memory is not None:
            parts = self.memory()
            self._line("info", "memory", {"bytes": dict(parts), "total_bytes": sum(parts.values())})
            self.memory = None
        view = {"view": self._view} if self._view else {}
        rates = self._rates.mark(self._clock())
        self._line(
            "info",
            "update",
            {"values": plain(values), "steps_a_second": rates, "phases": self._phases.shares(), **view},
        )

    def fact(self, event: Event) -> None:
        """A line of its own; phases have theirs with the update."""
        if isinstance(event, PhaseEnded):
            return
        fields = msgspec.to_builtins(event)
        fields.pop("at", None)
        kind = fields.pop("type")
        if isinstance(event, LogLine):
            self._line(_LEVELS[event.severity], event.message, {"subsystem": event.subsystem})
            return
        level = "warning" if isinstance(event, NonFiniteSeen) else "info"
        self._line(
            level, kind, {f"of_{name}" if name == "event" else name: value for name, value in fields.items()}
        )

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """How it ended."""
        self._line("info" if reason is None else "error", "run ended", {"outcome": outcome, "reason": reason})

    def _line(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        bound: dict[str, object] = {} if self._update is None else {"update": self._update}
        if (header := self._trace()).count("-") == 3:
            bound["trace_id"] = header.split("-")[1]
        getattr(self._log, level)(event, **(bound | dict(fields)))

"""Words and colours of what comes as numbers: states of runs, levels, severities, bounds.

Rules: colour is never the only sign, so each number has a word; larger codes are worse, since of several the
largest is shown; limits come from the catalogue's rows. Must not know panels.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from overwatch.catalog import Metric, Side, Stage
from overwatch.catalog.bounds import ROWS as BOUNDS
from overwatch.catalog.metric import Limits
from overwatch.generate.boards.spec import Step, Word
from overwatch.serve.prometheus import RUN_STATES

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
BLUE: Final = "blue"
GREY: Final = "text"

_RUNS: Final = {
    "completed": (1, BLUE),
    "interrupted": (2, GREY),
    "ended": (3, GREY),
    "live": (4, GREEN),
    "catching_up": (5, BLUE),
    "slow": (6, YELLOW),
    "silent": (7, YELLOW),
    "stale": (8, "orange"),
    "failed": (9, RED),
    "lost": (10, "dark-red"),
}
RUN_CODES: Final[Mapping[str, int]] = {
    state: code for state, (code, _) in _RUNS.items() if state in RUN_STATES
}
RUN_WORDS: Final[Mapping[int, Word]] = {
    code: Word(text=state.upper().replace("_", " "), colour=colour)
    for state, (code, colour) in _RUNS.items()
    if state in RUN_STATES
}

LEVEL_CODES: Final[Mapping[str, int]] = {"ok": 0, "warning": 1, "critical": 2}
LEVEL_WORDS: Final[Mapping[int, Word]] = {
    0: Word(text="OK", colour=GREEN),
    1: Word(text="WARN", colour=YELLOW),
    2: Word(text="CRIT", colour=RED),
}
FINDING_WORDS: Final[Mapping[int, Word]] = {
    0: Word(text="calm", colour=GREEN),
    1: Word(text="WARNING", colour=YELLOW),
    2: Word(text="CRITICAL", colour=RED),
}

BOUND_CODES: Final[Mapping[str, int]] = {row.state.label: code for code, row in enumerate(reversed(BOUNDS))}
_CALM_BOUNDS: Final = {"compute": GREEN, "idle": GREY, "unknown": GREY}
BOUND_WORDS: Final[Mapping[int, Word]] = {
    BOUND_CODES[row.state.label]: Word(
        text=row.state.value, colour=RED if row.fault else _CALM_BOUNDS.get(row.state.label, BLUE)
    )
    for row in BOUNDS
}

ENV_STATES: Final = ("crashed", "diverging", "degraded", "stalled", "unknown", "ok")
"""Of an env, the worst first."""
STAGES: Final = tuple(stage.value for stage in Stage if stage is not Stage.UNKNOWN)

ANY_IS_BAD: Final = (Step(at=None, colour=GREEN), Step(at=1, colour=RED))
"""One is one too many."""
ANY_IS_A_WARNING: Final = (Step(at=None, colour=GREEN), Step(at=1, colour=YELLOW))
CALM: Final = (Step(at=None, colour=BLUE),)
"""A number that nobody judges."""

_UNITS: Final = {
    "1": "percentunit", "s": "s", "By": "bytes", "By/s": "binBps", "Cel": "celsius", "W": "watt",
    "Hz": "hertz",
}  # fmt: skip


def unit_of(row: Metric) -> str:
    """Grafana's name of a row's unit."""
    return _UNITS.get(row.unit, "none")


def steps_of(row: Metric) -> tuple[Step, ...]:
    """The row's limits of the default preset as colours from low to high; none without absolute limits.

    Grafana colours from a step on, so a value that equals a limit has the colour of what is above it.
    """
    sides = [side for side in row.limits.sides if side.warning or side.critical]
    if not sides or any(_relative(side) for side in sides):
        return ()
    low = [step for side in sides if _is_below(side) for step in _rising(side)]
    high = [step for side in sides if not _is_below(side) for step in _falling(side)]
    return (*(low or [Step(at=None, colour=GREEN)]), *high)


def limits(row: Metric) -> str:
    """The row's limits of the default preset, for a sentence: `yellow above 0.015, red above 0.03`."""
    parts = []
    for side in row.limits.sides:
        where = "below" if _is_below(side) else "above"
        for colour, limit in ((YELLOW, side.warning), (RED, side.critical)):
            if limit is not None:
                value = f"{limit.value:.0%}" if row.unit == "1" else f"{limit.value:g}"
                own = " times its own median" if limit.relative else ""
                parts.append(f"{colour} {where} {value}{own}")
    return ", ".join(parts)


def _relative(limits: Limits) -> bool:
    return any(limit is not None and limit.relative for limit in (limits.warning, limits.critical))


def _is_below(limits: Limits) -> bool:
    limit = limits.warning or limits.critical
    return limit is not None and limit.side in (Side.BELOW, Side.AT_OR_BELOW)


def _falling(limits: Limits) -> Iterable[Step]:
    """Colours of a row that is bad above."""
    for colour, limit in ((YELLOW, limits.warning), (RED, limits.critical)):
        if limit is not None:
            yield Step(at=limit.value, colour=colour)


def _rising(limits: Limits) -> Iterable[Step]:
    """Colours of a row that is bad below, from the bottom."""
    at: float | None = None
    for colour, limit in ((RED, limits.critical), (YELLOW, limits.warning)):
        if limit is not None:
            yield Step(at=at, colour=colour)
            at = limit.value
    yield Step(at=at, colour=GREEN)

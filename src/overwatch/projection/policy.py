"""The policy pulse: one reading a row, with its text, limit and trend; and the proxy beside the true return.

Selects and formats, never judges.
"""

import math
from typing import Final

import msgspec

from overwatch.catalog import (
    BY_NAME,
    NO_LIMITS,
    Direction,
    Limit,
    Limits,
    Metric,
    Scope,
    Side,
    head_of,
    key_of,
    of_scope,
)
from overwatch.catalog.figures import number
from overwatch.catalog.goodhart import GAP, PROXY, TRUE
from overwatch.catalog.gradients import ENTROPY_NATS
from overwatch.catalog.policy import ENTROPY
from overwatch.catalog.rewards import ROWS as GROWTH
from overwatch.diagnose import Judged
from overwatch.diagnose.hacking import LEAST, WORDS
from overwatch.events.adding import added
from overwatch.projection.text import safe
from overwatch.snapshot import Limit as LimitView
from overwatch.snapshot import Parting, Reading
from overwatch.state.arrays import median
from overwatch.state.policy import Judgement, Series
from overwatch.state.run import RunState

SHARES: Final = ("1", "{variance}", "{correlation}")
"""Units of what is at most 1, and best there."""
NATS: Final = "nat"
TEXT_CELLS: Final = 12
"""Of a value as text; a longer one has a prefix or an exponent."""
TREND_NEEDS: Final = 4
TREND_RESIDUALS: Final = 2.0
"""A trend rises by more than this many times the scatter around it."""


def readings(state: RunState, judged: Judged) -> dict[str, Reading]:
    """All policy rows in catalogue order, then the run's own custom values by name.

    A row that nothing was received of is there as absent, unless only worlds that grow networks have it. The
    entropy of a policy that has converged is low and as it should be.
    """
    tick = judged.assessment.tick
    found: dict[str, Reading] = {}
    for row in of_scope(Scope.POLICY):
        series = state.policy.get(row.name)
        if series is not None:
            found[row.short] = reading(state, row, series, tick)
        elif row not in GROWTH:
            found[row.short] = _ABSENT[row.short]
    for name in sorted(state.policy):
        if name not in BY_NAME:
            short = safe(key_of(name))
            found[short] = custom_reading(short, state.policy[name], tick)
    if judged.converged:
        found[ENTROPY.short] = msgspec.structs.replace(found[ENTROPY.short], status="ok")
    return found


def reading(state: RunState, row: Metric, series: Series, tick: int) -> Reading:
    """A series as a view may know it."""
    return Reading(
        value=series.value,
        status=status_of(series),
        non_finite=series.non_finite,
        limit=_limit(row, series.judgement),
        trend=trend(series.history.items),
        direction=_direction(row),
        age_s=max(0.0, (tick - series.stamp) / 1e9),
        history=tuple(series.history.items),
        scale=scale_of(row, state.limits(row), series),
        spread=state.ranks.spread(row.name, series.value),
        label=row.label,
        text=text_of(series, *shown_as(state, row)),
        warnings=series.warnings,
        criticals=series.criticals,
    )


def shown_as(state: RunState, row: Metric) -> tuple[str, str]:
    """How a row's values are shown: format, and what stands behind."""
    in_nats = row is ENTROPY and state.entropy_in_nats and state.limits(row) == NO_LIMITS
    return (ENTROPY_NATS.fmt, NATS) if in_nats else (row.fmt, row.suffix)


def custom_reading(short: str, series: Series, tick: int) -> Reading:
    """A number that no row judges; one of a single head is shown as that of all heads is."""
    part = head_of(short)
    label, fmt, suffix = (
        (short, ".4g", "")
        if part is None
        else (
            f"{part[0].label} {part[1]}",
            part[0].fmt,
            part[0].suffix,
        )
    )
    return Reading(
        value=series.value,
        status="ok" if series.non_finite is None else "absent",
        non_finite=series.non_finite,
        trend=trend(series.history.items),
        age_s=max(0.0, (tick - series.stamp) / 1e9),
        history=tuple(series.history.items),
        label=label,
        text=text_of(series, fmt, suffix),
    )


def status_of(series: Series) -> str:
    """The word for its newest value."""
    if series.non_finite == "undefined":
        return "absent"
    return "ok" if series.judgement is None else series.judgement.status.word


def text_of(series: Series, fmt: str, suffix: str) -> str:
    """The newest value as shown."""
    if series.non_finite == "undefined":
        return "n/a"
    if series.non_finite is not None:
        return {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}[series.non_finite]
    return "–" if series.value is None else shown(series.value, fmt) + suffix


def shown(value: float, fmt: str) -> str:
    """A value by its row's format; one of many digits with a prefix or an exponent."""
    return format(value, fmt) if "%" in fmt or not math.isfinite(value) else number(value, fmt, TEXT_CELLS)


def scale_of(row: Metric, limits: Limits, series: Series) -> tuple[float, float] | None:
    """Ends of the sparkline of a row with limits: a full block is at or past the worst limit.

    Where low is bad the scale runs over all of 0 to 1; relative limits use the run's own median. A row that
    is healthy in between, or whose low end is not known, has none.
    """
    limit = limits.warning if limits.warning is not None and limits.warning.relative else limits.critical
    limit = limit or limits.warning
    if limit is None or limits.other is not None:
        return None
    if limit.side in (Side.BELOW, Side.AT_OR_BELOW):
        return (0.0, 1.0) if row.unit in SHARES else None
    top = limit.threshold(median(series.usual.items)) or 0.0
    return (0.0, top) if 0 < top < math.inf else None


def _direction(row: Metric) -> str | None:
    return None if row.direction is Direction.NONE else row.direction.value


def absent(row: Metric) -> Reading:
    """A row that nothing was received of."""
    return Reading(label=row.label, direction=_direction(row))


_ABSENT: Final = {row.short: absent(row) for row in of_scope(Scope.POLICY)}


def _limit(row: Metric, judgement: Judgement | None) -> LimitView | None:
    if judgement is None or judgement.limit is None or judgement.threshold is None:
        return None
    return LimitView(text=limit_text(row, judgement.limit), value=judgement.threshold)


def limit_text(row: Metric, limit: Limit) -> str:
    """A limit as shown: `>.015`, `<30%`, `>4.0×`."""
    sign = ">" if limit.side.is_above else "<"
    if limit.relative:
        return f"{sign}{limit.value:.1f}×"
    if row.fmt.endswith("%"):
        return f"{sign}{limit.value:.0%}"
    number = f"{limit.value:g}" if limit.value else "0.0"
    return sign + (number.removeprefix("0") if number.startswith("0.") and limit.value else number)


def trend(history: list[float | None]) -> str | None:
    """`up` or `down` where the slope stands out from the scatter around it, else `flat`."""
    values = [value for value in history if value is not None]
    n = len(values)
    if n < TREND_NEEDS:
        return None
    middle, mean = (n - 1) / 2, added(values) / n
    spread = added((i - middle) * (i - middle) for i in range(n))
    slope = added((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
    apart = [value - mean - slope * (i - middle) for i, value in enumerate(values)]
    # A product that is too large is infinite, a power raises.
    residual = added(distance * distance for distance in apart)
    scatter = (residual / n) ** 0.5
    rise = slope * (n - 1)
    if abs(rise) <= max(TREND_RESIDUALS * scatter, 0.02 * abs(mean)):
        return "flat"
    return "up" if rise > 0 else "down"


def parting_view(state: RunState, judged: Judged) -> Parting | None:
    """What a view may know of it; `None` where neither return is reported."""
    proxy, true = state.policy.get(PROXY.name), state.policy.get(TRUE.name)
    if proxy is None and true is None:
        return None
    known, pairs, gap = judged.assessment.policy.hacking, state.pairs.total, state.policy.get(GAP.name)
    way = known.stands or known.way
    word, text = _state(proxy, true, pairs, known.stands)
    if word == "together" and way is not None:
        word, text = "parting", f"not held long enough yet: {WORDS[way]}"
    return Parting(
        state=word,
        text=text,
        gap=None if gap is None else gap.value,
        pairs=pairs,
        needed=LEAST,
        way=way,
        factors=known.factors,
    )


def _state(proxy: Series | None, true: Series | None, pairs: int, stands: str | None) -> tuple[str, str]:
    if stands is not None:
        return "parted", WORDS[stands]
    if not _differs(true):
        return "no-true-signal", "no true signal"
    if not _differs(proxy):
        return "no-true-signal", "no proxy beside the true return"
    if pairs < LEAST:
        return "waiting", f"{pairs} of {LEAST} updates"
    return "together", "the true return follows"


def _differs(series: Series | None) -> bool:
    """Whether it is reported at all, and is not the same in all updates."""
    return series is not None and series.highest is not None and series.highest != series.lowest

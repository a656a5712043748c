"""Policy rows that follow from others, units that show in values, breaches that early stops answered.

Rules: what the trainer itself sent stays; nothing is made of what was not sent or not finite. An entropy
beyond 0 to 1 is no share of its maximum, so it is in nats (every library's own entropy is, of a density even
negative): it is judged by nothing, unless the run declared the maximum: then its share is worked out. Any
other share beyond 0 to 1 is none either, so the run's numbers of that name are custom ones. A stop
that kept its update's KL within twice its target worked. Stops and the numbers of their updates come in
either order, and one record may report many updates: both sides are settled whenever one of them comes. Must
not know findings.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, KL, Kind, Metric, Scope, of_scope
from overwatch.catalog.critic import VALUE_MAX, VALUE_MIN, VALUE_SPREAD
from overwatch.catalog.goodhart import FOOD, GAP, POISON, PROXY, TRUE
from overwatch.catalog.gradients import ENTROPY_CLIP, ENTROPY_NATS
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.moves import KL_DRIFT, KL_JOINT, TRUST_REGION
from overwatch.catalog.policy import CLIP_FRACTION, ENTROPY, GRAD_CLIPPED, GRAD_NORM
from overwatch.events import EarlyStopped, Measured
from overwatch.events.adding import added
from overwatch.state.arrays import median
from overwatch.state.policy import (
    LEVEL,
    Series,
    Status,
    excuse,
    forgive,
    judge,
    new_series,
    observe,
    share_above,
    unjudge,
)
from overwatch.state.run import Entry, RunState

SLOPE_OF: Final = 10
"""Newest values of KL whose slope is reported."""
SLOPE_NEEDS: Final = 5
SPREAD_FROM: Final = 50
"""Updates after which the range of values is what later ones are compared with."""


def derive(state: RunState, event: Measured, stamp: int) -> None:
    """Add to the rows that follow from this update."""
    for row, value in _derived(state, event):
        if row.name in event.values:
            continue
        series = state.policy.get(row.name)
        if series is None:
            series = state.policy[row.name] = new_series()
        observe(series, row, state.limits(row), value)
        series.at, series.stamp = event.at, stamp


def _derived(state: RunState, event: Measured) -> Iterator[tuple[Metric, float]]:
    if GRAD_NORM.name in event.values:
        norms, limit = state.policy.get(GRAD_NORM.name), state.declared("max_grad_norm")
        if limit is not None and norms is not None and norms.value is not None:
            yield GRAD_CLIPPED, share_above(norms, limit)
    if ENTROPY_NATS.name in event.values:
        nats, most = state.policy.get(ENTROPY_NATS.name), state.declared("max_entropy")
        if most is not None and nats is not None and nats.value is not None and nats.value >= 0:
            yield ENTROPY, min(nats.value / most, 1.0)
    if KL.name in event.values:
        newest = state.policy[KL.name].window.items[-SLOPE_OF:] if KL.name in state.policy else []
        if len(newest) >= SLOPE_NEEDS:
            yield KL_DRIFT, slope(newest)
    # The joint policy is what clipping and early stops act on.
    moved = next((row for row in (KL_JOINT, KL) if row.name in event.values), None)
    reported = None if moved is None else state.policy.get(moved.name)
    # A target that the run declared is where its KL warns.
    target = state.limits(KL).warning
    if reported is not None and reported.value is not None and target is not None:
        yield TRUST_REGION, reported.value / target.value
    yield from _of_goodhart(state, event)
    if (together := _together(state, event)) is not None:
        yield ENTROPY_CLIP, together
    if (spread := _spread(state, event)) is not None:
        yield VALUE_SPREAD, spread


def _of_goodhart(state: RunState, event: Measured) -> Iterator[tuple[Metric, float]]:
    """The gap of the two returns, and the one share of what was eaten that follows from the other."""
    for known, other in ((FOOD, POISON), (POISON, FOOD)):
        share = state.policy.get(known.name) if known.name in event.values else None
        if share is not None and share.value is not None and 0.0 <= share.value <= 1.0:
            yield other, 1.0 - share.value
    proxy, true = state.policy.get(PROXY.name), state.policy.get(TRUE.name)
    if proxy is None or true is None or not event.values.keys() & {PROXY.name, TRUE.name}:
        return
    places = _place(proxy), _place(true)
    if places[0] is not None and places[1] is not None:
        yield GAP, places[0] - places[1]


def _place(series: Series) -> float | None:
    """Where its level is between the lowest and the highest that it had; `None` where it never differed."""
    level = median(series.window.items[-LEVEL:])
    if level is None or series.lowest is None or series.highest is None:
        return None
    # Halves, so that no range of numbers overflows.
    span = series.highest / 2 - series.lowest / 2
    return (level / 2 - series.lowest / 2) / span if span > 0 else None


def _newest(state: RunState, event: Measured, *rows: Metric) -> list[Series] | None:
    """Series of rows that this event brought a finite value of each; `None` when it did not."""
    found = [state.policy[row.name] for row in rows if row.name in event.values and row.name in state.policy]
    return found if len(found) == len(rows) and all(one.value is not None for one in found) else None


def _together(state: RunState, event: Measured) -> float | None:
    """Correlation of the newest entropies and clip fractions; `None` while few, or when one does not vary."""
    both = _newest(state, event, ENTROPY, CLIP_FRACTION)
    if both is None or both[0].updates != both[1].updates:
        return None
    pairs = [
        (left, right)
        for left, right in zip(both[0].history.items, both[1].history.items, strict=False)
        if left is not None and right is not None
    ]
    return correlation(pairs) if len(pairs) >= SLOPE_NEEDS else None


def _spread(state: RunState, event: Measured) -> float | None:
    """The range of values over that of update `SPREAD_FROM`, or of the first with a range after it."""
    both = _newest(state, event, VALUE_MIN, VALUE_MAX)
    if both is None or both[1].updates < SPREAD_FROM or both[0].value is None or both[1].value is None:
        return None
    wide = both[1].value - both[0].value
    series = state.policy.get(VALUE_SPREAD.name)
    if series is not None and series.usual.items:
        return wide / series.usual.items[0]
    if not 0 < wide < math.inf:
        return None
    # No limit of this row is relative, so nothing else is kept here.
    state.policy.setdefault(VALUE_SPREAD.name, new_series()).usual.push(wide)
    return 1.0


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's, of pairs; `None` when either side does not vary."""
    n = len(pairs)
    left, right = (added(side) / n for side in zip(*pairs, strict=True))
    apart = [(x - left, y - right) for x, y in pairs]
    # Each root alone, as a product of squares overflows first.
    spread = math.sqrt(added(x * x for x, _ in apart)) * math.sqrt(added(y * y for _, y in apart))
    if not 0 < spread < math.inf:
        return None
    return max(-1.0, min(1.0, added(x * y for x, y in apart) / spread))


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of equally spaced values, at least two of them, from one to the next."""
    middle, mean = (len(values) - 1) / 2, added(values) / len(values)
    spread = added((i - middle) * (i - middle) for i in range(len(values)))
    return added((i - middle) * (value - mean) for i, value in enumerate(values)) / spread


MAX_ENTROPY: Final = "max_entropy"
"""Of a run's configuration: the entropy of a uniform choice, in nats."""
MOST_SHARE: Final = 1.01
"""Rounding may bring a share a little above 1."""
LEAST_SHARE: Final = -0.01
_SHARES: Final = frozenset(
    row.name for row in of_scope(Scope.POLICY)
    if row.unit == "1" and row.kind is Kind.GAUGE and row is not ENTROPY
)  # fmt: skip
T = TypeVar("T")


def settle_units(state: RunState, event: Measured) -> tuple[Measured, list[Entry]]:
    """The measurement as it is folded, and the feed's lines about units that turned out to be others.

    One value beyond 0 to 1 decides that all of its run are no shares: an entropy is in nats, any other number
    is a custom one.
    """
    sent = [name for name in event.values if name in _SHARES]
    beyond = [name for name in sent if name not in state.no_shares and _is_beyond(event, name)]
    state.no_shares += beyond
    for name in beyond:
        series = state.policy.pop(name, None)
        if series is not None:
            unjudge(series)
            state.policy[_custom(name)] = series
    lines = [_line(event, _no_share(name)) for name in beyond]
    renamed = {name: _custom(name) for name in sent if name in state.no_shares}
    if ENTROPY.name in event.values:
        if not state.entropy_in_nats and _is_beyond(event, ENTROPY.name):
            state.entropy_in_nats = True
            if ENTROPY.name in state.policy:
                unjudge(state.policy[ENTROPY.name])
            lines.append(_line(event, _IN_NATS))
        if state.entropy_in_nats and state.declared(MAX_ENTROPY) is not None:
            renamed[ENTROPY.name] = ENTROPY_NATS.name
    return _renamed(event, renamed) if renamed else event, lines


def _is_beyond(event: Measured, name: str) -> bool:
    """Whether a value of a name, or an extreme of those it stands for, is finite and no share."""
    many = event.conflated
    ends = () if many is None else (many.low.get(name), many.high.get(name))
    values = [column.first() for column in (event.values[name], *ends) if column is not None and len(column)]
    return any(value < LEAST_SHARE or value > MOST_SHARE for value in values if value - value == 0)


def _custom(name: str) -> str:
    return f"{CUSTOM_PREFIX}{BY_NAME[name].short}"


def _renamed(event: Measured, names: Mapping[str, str]) -> Measured:
    moved, many = partial(_moved, names=names), event.conflated
    if many is not None:
        many = msgspec.structs.replace(
            many, low=moved(many.low), high=moved(many.high), warnings=moved(many.warnings),
            criticals=moved(many.criticals),
        )  # fmt: skip
    return msgspec.structs.replace(event, values=moved(event.values), conflated=many)


def _moved(by_name: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """The same under other names; what was sent under those stays."""
    moved = {new: by_name[old] for old, new in names.items() if old in by_name}
    return moved | {name: value for name, value in by_name.items() if name not in names}


def _no_share(name: str) -> str:
    short = BY_NAME[name].short
    return (
        f"{short} is beyond 0 to 1, which a share cannot be: it is not judged and shown as a custom number; "
        f"send it as a share, or under a name of its own"
    )


_IN_NATS: Final = (
    "entropy is no share of its maximum here: taken as nats; send it as entropy_nats, or its share "
    "as entropy_relative; n_actions or max_entropy in the run's config make one from the other"
)


def _line(event: Measured, message: str) -> Entry:
    return Entry(at=event.at, severity="warning", subsystem="policy", kind="log_line", message=message)


def settle_stops(state: RunState) -> None:
    """Take back the breaches in the newest record of KL that stops have answered."""
    kl, stop = state.policy.get(KL.name), state.early_stop
    if kl is None or stop is None:
        return
    if stop.update == state.update and kl.value is not None and _worked(stop, kl.value):
        forgive(kl)
    _settle_rest(state, kl)


def _worked(stop: EarlyStopped, value: float) -> bool:
    return value <= STOPPED_WITHIN * stop.target


def _settle_rest(state: RunState, kl: Series) -> None:
    """Of the updates before a record's last one only their breaches are counted: the stops hold their KL."""
    rest = state.kl_rest
    if rest is None:
        return
    answered = {
        stop.update: stop.kl_divergence
        for stop in state.early_stops.items
        if rest.last - rest.n <= stop.update < rest.last and _worked(stop, stop.kl_divergence)
    }
    limits = state.limits(KL)
    statuses = [judge(value, limits, None).status for value in answered.values()]
    excuse(kl, rest, warnings=statuses.count(Status.WARNING), criticals=statuses.count(Status.CRITICAL))

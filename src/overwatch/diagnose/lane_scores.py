"""How far each lane is from the others, and why: the envs' machinery once more, one level up.

The same factors' shape, weights and limits, over lanes: a factor abstains where there is nothing to compare
with, and its limit grows with the number of lanes. What an env is flagged for alone is its own matter; a lane
stands out when its envs do together. Pure; must not know how a score is shown.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np

from overwatch.diagnose.anomaly import REASONS, STATUSES, Anomalies
from overwatch.diagnose.bounds import Bound
from overwatch.diagnose.factor import HARD, SOFT_CAP
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.diagnose.returns import Returns
from overwatch.diagnose.robust import far, median_of, most_events, spread_low
from overwatch.diagnose.usual import LEAST_REPORTING
from overwatch.events.adding import added
from overwatch.state.places import Mask, Rows, num_of

_CRASHED: Final = STATUSES.index("crashed")
_NONE: Final = np.zeros(0, dtype=np.int64)
_LEAST: Final = 2
"""Envs that are off together; one alone is no lane's matter."""


class LaneScore(msgspec.Struct, frozen=True, kw_only=True):
    """One lane."""

    score: float
    reasons: tuple[str, ...]
    """Strongest first."""


_LIKE_OTHERS: Final = LaneScore(score=0.0, reasons=())


class _Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What the factors know of one lane."""

    name: str
    rows: Rows
    num: int
    """Its envs."""
    lanes: int
    """Lanes that have envs."""
    fleet: Fleet
    crashed: Mask | None
    """Which envs of all have crashed; `None` where none has."""
    unwell: Mask | None
    """Which are off in any other way."""
    bound: Bound | None
    low: tuple[float, str] | None
    """How much it weighs that its episodes earn little, and the reason."""
    limits: AnomalyLimits


_Said: TypeAlias = tuple[float, str]


def score_lanes(
    fleet: Fleet,
    anomalies: Anomalies,
    bounds: Mapping[str, Bound],
    low: Mapping[str, tuple[float, str]],
    limits: AnomalyLimits,
) -> dict[str, LaneScore]:
    """Score every lane that has envs or readings, by name, in order of first sight; `low` as `low_lanes`."""
    rows = fleet.state.envs.by_lane()
    crashed, unwell = _off(anomalies)
    found, num_lanes = {}, len(rows) - (-1 in rows)
    for code, name in enumerate(fleet.state.lane_names.words):
        if code not in rows and name not in bounds:
            continue
        own = rows.get(code, _NONE)
        lane = _Lane(
            name=name,
            rows=own,
            num=num_of(own),
            lanes=num_lanes,
            fleet=fleet,
            crashed=crashed,
            unwell=unwell,
            bound=bounds.get(name),
            low=low.get(name),
            limits=limits,
        )
        said = [one for factor in FACTORS if (one := factor(lane)) is not None]
        if not said:
            found[name] = _LIKE_OTHERS
            continue
        said.sort(key=lambda one: -one[0])
        found[name] = LaneScore(
            score=added(weight for weight, _ in said), reasons=tuple(reason for _, reason in said[:REASONS])
        )
    return found


def _down(lane: _Lane) -> _Said | None:
    """Far more of its envs have crashed than chance gives to any lane; most of them is a hard fault."""
    return None if lane.crashed is None else _together(lane, lane.crashed, "crashed")


def _unwell(lane: _Lane) -> _Said | None:
    """The same for envs that are off in any other way."""
    return None if lane.unwell is None else _together(lane, lane.unwell, "not ok")


def _off(anomalies: Anomalies) -> tuple[Mask | None, Mask | None]:
    """Which envs have crashed, and which are off otherwise."""
    codes = anomalies.codes
    if not anomalies.factors or not codes.any():
        return None, None
    crashed = codes == _CRASHED
    return crashed, (codes > 0) & ~crashed


def _together(lane: _Lane, off: Mask, word: str) -> _Said | None:
    own = int(off[lane.rows].sum())
    if own < _LEAST:
        return None
    others = lane.fleet.n - lane.num
    usual = (int(off.sum()) - own) / others * lane.num if others else 0.0
    limit = max(most_events(usual, max(1, lane.lanes)), _LEAST)
    if own < limit:
        return None
    weight = HARD if word == "crashed" and 2 * own > lane.num else min(own / limit, SOFT_CAP)
    return weight, f"{own} of {lane.num} envs {word}"


def _slow(lane: _Lane) -> _Said | None:
    """Its usual step is well above that of the other lanes of its kind."""
    pace = lane.fleet.lane_pace.get(lane.name)
    if pace is None or pace < lane.limits.slow_lane:
        return None
    return min(pace / lane.limits.slow_lane, SOFT_CAP), f"steps {pace:.1f}× the other lanes'"


def low_lanes(fleet: Fleet, limits: AnomalyLimits) -> dict[str, tuple[float, str]]:
    """Lanes whose episodes earn less than the other lanes' do: how much that weighs, and the reason."""
    rows, found = fleet.state.envs.by_lane(), {}
    num_lanes = sum(code >= 0 for code in rows)
    if fleet.returns is None or num_lanes < 2:
        return {}
    for code, name in enumerate(fleet.state.lane_names.words):
        said = _low(fleet, fleet.returns, rows[code], far(num_lanes, limits.margin)) if code in rows else None
        if said is not None:
            found[name] = said
    return found


def _low(fleet: Fleet, returns: Returns, rows: Rows, limit: float) -> _Said | None:
    """By far more than the luck of so many envs."""
    own = returns.recent[rows][returns.judged[rows]]
    if own.size < LEAST_REPORTING:
        return None
    # The fleet's middle lies between this lane's and the others': most lanes need no closer look.
    least = 1.2533 * returns.fleet.noise / 2 * (1.0 / own.size) ** 0.5
    if returns.fleet.recent - median_of(own) < limit / 2 * least:
        return None
    on = np.zeros(fleet.n, dtype=np.bool_)
    on[rows] = True
    others = returns.recent[returns.judged & ~on]
    if others.size < LEAST_REPORTING:
        return None
    # The scatter of the others: a lane that fell must not excuse itself by its own fall. A median scatters
    # 1.25 times as much as a mean does.
    scatter = max(spread_low(others), returns.fleet.noise / 2)
    luck = 1.2533 * scatter * (1.0 / own.size + 1.0 / others.size) ** 0.5
    low = (median_of(others) - median_of(own)) / luck
    if low < limit:
        return None
    return min(1.0 + low / limit, SOFT_CAP), f"return {low:.1f} deviations below the other lanes'"


def _earns_little(lane: _Lane) -> _Said | None:
    """Its envs' episodes earn less than the other lanes' do."""
    return lane.low


def _held_back(lane: _Lane) -> _Said | None:
    """What holds it back is a fault of its own, not the work it does."""
    if lane.bound is None or lane.bound.mark not in ("!", "!!"):
        return None
    why = lane.bound.why.partition(";")[0]
    return (2.0 if lane.bound.mark == "!!" else 1.0), f"{lane.bound.state.lower()}: {why}"


FACTORS: Final[tuple[Callable[[_Lane], _Said | None], ...]] = (
    _down,
    _unwell,
    _slow,
    _earns_little,
    _held_back,
)

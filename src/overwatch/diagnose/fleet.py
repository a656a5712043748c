"""What the rules know of the fleet at one tick: its envs, and what is usual among them.

What needs every env at once (medians, scatters) is worked out once a second and kept between the fast ticks,
so that one of them costs few passes over the envs: these only look for an env beyond what is usual, and where
one is found the fleet's facts of this very tick are worked out. What the fleet and each lane add up to
(middles, ends, seeds, operations) is shown above the rows of the board, where a number that changes ten times
a second could not be read.

All envs share one policy, so most differences of their returns are luck: an env is compared with what it
earned before and with the envs that still earn what they did, by medians over several episodes. What an env
earned before is kept for as long as it earns far less, so that no number of bad envs, nor of bad episodes,
becomes what is usual. Limits grow with the number of envs; only + − × ÷, square roots, sorts and sums, so
every machine gets the same bits. Pure; must not know what is too far, or how a number is shown.
"""

import sys
from typing import Final

import msgspec
import numpy as np

from overwatch.state.arrays import NORMAL, Floats, Ints, floats, median
from overwatch.state.env_tables import EpisodeSums
from overwatch.state.envs import Envs
from overwatch.state.places import Mask
from overwatch.state.run import RunState

_TAIL: Final = 1.2816
"""Standard deviations between the median and the outermost tenth, for normal data."""
_LN2: Final = 0.6931471805599453


def ln_above(n: int) -> float:
    """A number no smaller than ln n and at most ln 2 larger, for n ≥ 1."""
    return (n - 1).bit_length() * _LN2


def far(n: int, margin: float) -> float:
    """How many standard deviations the worst of n healthy envs may lie from the middle, and `margin` more."""
    return float((2.0 * ln_above(max(2, n))) ** 0.5) + margin


def median_of(values: Floats) -> float:
    """Median of at least one finite value, shape (k,)."""
    half = values.size // 2
    parted = np.partition(values, half)
    high: float = parted.item(half)
    # Two zeros are equal, so how they are sorted is up to the machine: the sum has one sign.
    return (high if values.size % 2 else (parted[:half].max().item() + high) / 2) + 0.0


def spread_low(values: Floats) -> float:
    """Standard deviation of at least two finite values, by their middle and their lower side.

    Where the outermost tenth on the low side begins counts too, so that a long tail is no outlier of its own.
    """
    centre, place = median_of(values), -(-values.size // 10)
    tenth = np.partition(values, place).item(place)
    return max(NORMAL * median_of(np.abs(values - centre)), (centre - tenth) / _TAIL)


def spread_high(values: Floats) -> float:
    """As `spread_low`, by the upper side."""
    return spread_low(-values)


def most_events(mean: float, n: int) -> int:
    """The least count that not one in a hundred fleets of n envs reaches by chance around `mean`."""
    budget = 0.01 / n
    if mean > 50:
        return int(mean + (far(n, 3.0)) * mean**0.5) + 1
    term = _fading(mean)
    tail, count = 1.0, 0
    while tail > budget and count < 1_000:
        tail -= term
        count += 1
        term *= mean / count
        if tail < 1e-9:
            break
    return count


def _fading(x: float) -> float:
    """Exponential of −x for 0 ≤ x ≤ 50, by squaring; the same bits on every machine."""
    part = x / 4096.0
    small = 1.0 - part + part * part / 2.0 - part * part * part / 6.0
    for _ in range(12):
        small *= small
    return small


REPORTING: Final = 10
"""Earlier episodes of all such envs together, below which their scatter is luck itself."""
DROP: Final = 3.0
"""Standard deviations of an episode by which an env that fell lies below what it earned before."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What was usual before envs went wrong, as of the newest second; arrays have shape (n,), NaN unknown."""

    level: Floats = msgspec.field(default_factory=lambda: floats(0))
    """What each env earned before; it stays while the env earns far less."""
    scatter: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Median distance of its episodes from that."""
    many_at: int = 0
    """When more envs than are ever few began to earn far less; 0 while they do not."""
    step: float | None = None
    """Median step of all envs, seconds; it stays while most of them take far longer."""
    seen_at: int = 0
    """Producer's time of the newest record of any env..."""
    updates: int = 0
    """...the run's updates when that was seen..."""
    most_updates: int = 0
    """...and the most that came between two such records so far."""

    def by(self, rows: Ints) -> "Past":
        """The same by rows of now, which were these before, -1 where there was none."""
        level, scatter = (np.append(known, np.nan)[rows] for known in (self.level, self.scatter))
        return msgspec.structs.replace(self, level=level, scatter=scatter)


def past_of(state: RunState, before: Past, crowd: float) -> Past:
    """What was usual, after a second more; a `crowd` is a share of the fleet."""
    envs, n, seen_at = state.envs, state.envs.n, state.envs.silences.at
    sums, updates = envs.all_sums(), before.updates if seen_at == before.seen_at else state.updates
    judged, level, scatter = sums.judged[:n], before.level, before.scatter
    least = DROP * max(_noise(scatter, sums, n), sys.float_info.min)
    fell = judged & np.isfinite(scatter)
    fell &= level - sums.lasting[:n] >= np.fmax(least, DROP * NORMAL * scatter)
    many = judged.any() and float(fell.sum()) > crowd * float(judged.sum())
    now = _reporting_median(envs.values["step_time"][:n])
    return Past(
        level=np.where(fell, level, sums.earlier[:n]),
        scatter=np.where(fell, scatter, sums.scatter[:n]),
        many_at=(before.many_at or state.last_at) if many else 0,
        # What is far more than it was is not what was usual.
        step=before.step if now is None or now >= SLOWER * (before.step or now) else now,
        seen_at=seen_at,
        updates=updates,
        most_updates=max(before.most_updates, updates - before.updates) if before.seen_at else 0,
    )


SLOWER: Final = 2.0
"""Times the median step of before: far more. So much may come with what a policy learns to do."""


class Earnings(msgspec.Struct, frozen=True, kw_only=True):
    """What the fleet earns."""

    num: int
    """Envs with enough finished episodes."""
    usual: float
    """The middle of the envs that earn what they did; the lower one of recent episodes and the very last."""
    recent: float
    """Middle of all envs' recent returns."""
    earlier: float
    """Middle of what they earned before."""
    spread: float
    """Standard deviation of the recent returns over the envs that earn what they did, robust."""
    noise: float
    """Standard deviation of single episodes, robust."""
    holding: int
    """How many earn what they did; 0 where they are too few to speak of a fleet."""


class Returns(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet's episodes at one tick; arrays have shape (n,), NaN where an env has too few episodes."""

    judged: Mask
    """Envs with enough finished episodes."""
    recent: Floats
    """Middle of the newest."""
    fleet: Earnings
    """What is usual."""


def earnings_of(envs: Envs, past: Past) -> Earnings | None:
    """What is usual; `None` where no env finished enough episodes, or all earned the same."""
    envs.newest_sums()
    sums, n = envs.all_sums(), envs.n
    judged = sums.judged[:n]
    if not judged.any():
        return None
    level, scatter = levels_of(sums, past, n)
    known = level[np.isfinite(level)]
    noise = _noise(scatter, sums, n)
    if noise < sys.float_info.min or not known.size:
        # Nor is a scale what no longer can be halved.
        return None
    holds = judged & ~(level - sums.recent[:n] >= DROP * noise)
    if past.many_at:
        # Who finished no episode since the others fell shows nothing yet.
        holds &= envs.episode_at[:n] > past.many_at
    holding = int(holds.sum())
    if holding < max(2, int(judged.sum()) // FEW):
        holding, holds = 0, judged
    recent = sums.recent[:n][holds]
    # A median of five scatters by about half of what one episode does.
    spread = max(spread_low(recent) if recent.size > 1 else 0.0, noise / 2)
    middle = median_of(recent)
    return Earnings(
        num=int(judged.sum()),
        usual=min(middle, median_of(sums.last[:n][holds])),
        recent=median_of(sums.recent[:n][judged]),
        earlier=median_of(known),
        spread=spread,
        noise=noise,
        holding=holding,
    )


FEW: Final = 20
"""One of so many is the least share of a fleet that shows what is usual."""


def levels_of(sums: EpisodeSums, past: Past, n: int) -> tuple[Floats, Floats]:
    """What each env earned before, and its scatter: as it was remembered, else by its episodes."""
    return (past.level, past.scatter) if past.level.size == n else (sums.earlier[:n], sums.scatter[:n])


def _noise(scatter: Floats, sums: EpisodeSums, n: int) -> float:
    """Scatter of one env's episodes: the fleet's median of it, else of all episodes together."""
    own = scatter[np.isfinite(scatter)]
    if own.size:
        before = int(sums.before[:n][np.isfinite(scatter)].sum())
        typical = NORMAL * median_of(own) if before >= REPORTING else 0.0
        if typical > 0:
            return typical
    # Few episodes, or most of them equal (sparse, saturated rewards): the rare ones set the scale.
    known = sums.count[:n] > 0
    if not known.any():
        return 0.0
    centre = sums.centre[:n][known]
    within = float(sums.squares[:n][known].sum()) / float(sums.count[:n][known].sum())
    apart = centre - float(centre.sum()) / centre.size
    return float((within + float((apart * apart).sum()) / centre.size) ** 0.5)


LEAST_REPORTING: Final = 4
"""Fewer envs have no fleet to differ from."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long steps take, seconds."""

    median: float | None = None
    """Of all envs; `None` where too few report it, or all the same."""
    lanes: dict[str, float] = {}
    """Median of each named lane that reports steps."""
    times: dict[str, float] = {}
    """Each lane's median over that of the other lanes of its kind; only where there are others."""


class Rents(msgspec.Struct, frozen=True, kw_only=True):
    """What envs pay that measure something."""

    num: int = 0
    usual: float = 0.0
    spread: float = 0.0
    """Standard deviation, robust; 0 where too few pay, or nothing."""


class FleetBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one tick."""

    pace: Pace = Pace()
    earnings: Earnings | None = None
    """`None` while no env has finished enough episodes."""
    rents: Rents = Rents()
    oldest_ns: int = 0
    """When the env that is quiet for longest last reported, on the fleet's clock; 0 where there is none."""


def baseline_of(state: RunState, past: Past | None = None) -> FleetBaseline:
    """What is usual now, and was."""
    envs, past, step_time = state.envs, past or Past(), state.envs.values["step_time"][: state.envs.n]
    lanes = _lane_medians(state, step_time)
    return FleetBaseline(
        pace=Pace(median=_reporting_median(step_time), lanes=lanes, times=_paces(lanes)),
        earnings=earnings_of(envs, past),
        rents=_rents_of(envs),
        oldest_ns=int(envs.silences.last_ns[: envs.n].min()) if envs.n else 0,
    )


def _rents_of(envs: Envs) -> Rents:
    rent = envs.values["rent"][: envs.n]
    paid: Floats = rent[np.isfinite(rent) & (envs.times["metric"][: envs.n] > 0)]
    if paid.size < LEAST_REPORTING:
        return Rents()
    usual = median_of(paid)
    return Rents(num=paid.size, usual=usual, spread=spread_high(paid) or abs(usual) / 2)


def kind_of(lane: str) -> str:
    """A lane's name without number and node: lanes of one kind do the same work and can be compared."""
    return lane.partition("@")[0].rstrip("0123456789")


def _reporting_median(values: Floats) -> float | None:
    """The median, unless too few envs report or all report the same."""
    known = values[np.isfinite(values)]
    if known.size < LEAST_REPORTING or known.min() == known.max():
        return None
    return median_of(known)


def _lane_medians(state: RunState, step_time: Floats) -> dict[str, float]:
    rows = state.envs.by_lane()
    names = {code: name for code, name in enumerate(state.lane_names.words) if code in rows}
    times = {name: step_time[rows[code]] for code, name in names.items()}
    known = {name: steps[(steps > 0) & (steps < np.inf)] for name, steps in times.items()}
    return {name: median_of(steps) for name, steps in known.items() if steps.size}


def quick(others: list[float]) -> float | None:
    """What is usual of times of which most may be slow: of five and more the end of the fastest quarter."""
    return sorted(others)[len(others) // 4] if len(others) > MIDDLED else median(others)


MIDDLED: Final = 4
"""So few have a middle only."""


def _paces(lanes: dict[str, float]) -> dict[str, float]:
    kinds: dict[str, dict[str, float]] = {}
    for name, step in lanes.items():
        kinds.setdefault(kind_of(name), {})[name] = step
    paces = {}
    for alike in kinds.values():
        for name, own in alike.items() if len(alike) > 1 else ():
            paces[name] = own / (quick([step for other, step in alike.items() if other != name]) or own)
    return paces


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The envs of one run at one tick; arrays have shape (n,)."""

    state: RunState
    n: int
    ids: Ints
    lane: Ints
    """Index into the run's lane names; -1 unknown."""
    step_time: Floats
    """Seconds; NaN where not measured."""
    usual: FleetBaseline
    """What was usual at the start of this second."""
    past: Past
    """And what was before envs went wrong."""
    returns: Returns | None
    """`None` while no env has finished enough episodes."""

    @property
    def newest_at(self) -> int:
        """Producer's time of the newest env record; 0 when there is none."""
        return int(np.maximum.reduce(self.state.envs.seen_at[: self.n], initial=0))

    def on_lane(self, name: str | None) -> Mask:
        """Which envs are on a lane; `None` is the lane that was not named."""
        on: Mask = self.lane == (-1 if name is None else self.state.lane_names.codes.get(name, -2))
        return on


def fleet_of(state: RunState, usual: FleetBaseline | None = None, past: Past | None = None) -> Fleet:
    """The fleet, by what is usual in it and was; worked out where it is not given."""
    envs, past = state.envs, past or Past()
    usual = baseline_of(state, past) if usual is None else usual
    sums, returns = envs.newest_sums(), None
    if usual.earnings is not None and sums.judged[: envs.n].any():
        returns = Returns(judged=sums.judged[: envs.n], recent=sums.recent[: envs.n], fleet=usual.earnings)
    return Fleet(
        state=state,
        n=envs.n,
        ids=envs.ids[: envs.n],
        lane=envs.lane[: envs.n],
        step_time=envs.values["step_time"][: envs.n],
        usual=usual,
        past=past,
        returns=returns,
    )

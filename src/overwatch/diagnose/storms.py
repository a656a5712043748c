"""Storms: many crashes or many culls on one lane within a minute. One finding about the lane, not many.

A storm of culls is above what the lane had before, and stands out from the rest of the fleet too: a shared
policy that learns to cull more changes all envs at once, and slowly. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from overwatch.diagnose.anomaly import Anomalies
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.problem import STEADY, Problem
from overwatch.diagnose.robust import most_events, most_events_after
from overwatch.state.arrays import Floats, Ints
from overwatch.state.env_tables import WINDOW_S

CRASHES: Final = 5
"""Crashes in a minute that make a storm, from at least two envs."""
CULLS: Final = 5
NEW_S: Final = 30
"""A storm is judged by its newest half minute against all that was before."""
BEFORE_S: Final = 15.0
"""Least history for a usual rate."""
LEAST_ENVS: Final = 2
"""Envs of a lane that stand out, from which on theirs is a storm."""
ENOUGH: Final = 4
"""Culls from which a usual rate is known; fewer give only an upper bound."""
MOMENTS: Final = 100
"""Half minutes of a healthy run in which chance must not make a storm."""
TIMES_USUAL: Final = 4.0
TIMES_USUAL_ALL: Final = 8.0
"""The same, where the whole fleet is alike."""


def crash_storms(fleet: Fleet) -> Iterator[Problem]:
    """Lanes on which envs crash one after another."""
    envs = fleet.state.envs
    if not envs.crashes:
        return
    counts = envs.crash_tally.recent(fleet.n, fleet.state.last_at)
    for name, on in _groups(fleet):
        events, over = int(counts[on].sum()), int((counts[on] > 0).sum())
        if events < CRASHES or over < 2:
            continue
        down = on & (envs.crashed_at[: fleet.n] > 0)
        example = _fell_last(envs.crashed_at[: fleet.n], np.where(on, counts, 0))
        yield Problem(
            code="crash-storm",
            severity="critical",
            scope="run" if name is None else "gpu",
            subject=name,
            at=fleet.state.last_at,
            message=f"crash storm: {events} crashes in {WINDOW_S}s over {over} envs",
            hint=f"open env {int(fleet.ids[example])}: last actions, events, traceback",
            names=int(fleet.ids[example]),
            symptoms=int(down.sum()),
            absorbs=("env-crashed",),
        )


def _fell_last(crashed_at: Ints, counts: Ints) -> int:
    """Row of an env that crashed: the newest that is down, else the one that crashed most."""
    fell = np.flatnonzero(counts)
    return int(fell[np.lexsort((counts[fell], crashed_at[fell]))[-1]])


def cull_storms(fleet: Fleet, anomalies: Anomalies, standing: Mapping[str, Problem]) -> Iterator[Problem]:
    """Lanes on which seeds are culled far more often than usual; a storm that goes on never becomes usual.

    A storm is about the whole lane, or about those of its envs that stand out from the fleet.
    """
    culls, state = fleet.state.envs.culls, fleet.state
    if culls.is_quiet(state.last_at) or int(culls.recent(fleet.n, state.last_at).sum()) < CULLS:
        return
    seen = _Culls(
        newest=culls.recent(fleet.n, state.last_at, NEW_S),
        totals=culls.totals[: fleet.n],
        past_s=np.maximum((state.last_at - state.envs.born_at[: fleet.n]) / 1e9 - NEW_S, 0.0),
        since_s=(state.last_at - min(culls.first_at, state.envs.gated_at or culls.first_at)) / 1e9 - NEW_S,
        odd=_standing_out(fleet, anomalies),
    )
    for name, on in _groups(fleet):
        if float(seen.past_s[on].mean()) < BEFORE_S:
            continue
        few = on & seen.odd
        storm = _storm(fleet, name, on, seen)
        open_one = standing.get(storm.id)
        if open_one is not None and open_one.usual is not None and open_one.stands is not None:
            if seen.rate(on) >= open_one.stands:
                of_few = bool(open_one.factors) and few.any()
                yield _storm(fleet, name, few if of_few else on, seen, open_one)
        elif seen.is_storm(on):
            yield storm
        elif LEAST_ENVS <= few.sum() < on.sum() and seen.is_storm(few):
            yield replace(
                _storm(fleet, name, few, seen),
                factors=(f"{few.sum()} of its {on.sum()} envs stand out",),
                # It is over when the lane has half of its surplus left.
                stands=(seen.usual(on) + seen.rate(on)) / 2,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Culls:
    """The culls of all envs; arrays have shape (n,)."""

    newest: Ints
    """In the newest half minute."""
    totals: Ints
    past_s: Floats
    """How long each env was there before it."""
    since_s: float
    """From the first cull or gate of any env to the newest half minute: for so long seeds are old enough."""
    odd: npt.NDArray[np.bool_]
    """Envs with far more culls or failed gates than the fleet."""

    def rate(self, on: npt.NDArray[np.bool_]) -> float:
        """Culls a minute of these envs in the newest half minute."""
        return int(self.newest[on].sum()) * WINDOW_S / NEW_S

    def known(self, on: npt.NDArray[np.bool_]) -> int:
        """Culls of these envs before the newest half minute."""
        return int(self.totals[on].sum() - self.newest[on].sum())

    def usual(self, on: npt.NDArray[np.bool_]) -> float:
        """Culls a minute of these envs before the newest half minute."""
        return self.known(on) / float(self.past_s[on].mean()) * WINDOW_S

    def is_storm(self, on: npt.NDArray[np.bool_]) -> bool:
        """Whether these envs' newest half minute stands out from their past, and from the other envs."""
        fresh, known, past_s = int(self.newest[on].sum()), self.known(on), float(self.past_s[on].mean())
        usual, now = self.usual(on), self.rate(on)
        if fresh < CULLS or now < TIMES_USUAL * usual:
            return False
        if fresh < most_events(usual * NEW_S / WINDOW_S, MOMENTS):
            return False
        if not on.all() and self._is_alone(on, fresh):
            return True
        # Where all are alike, seeds may just have become old enough to be culled.
        if self.since_s < BEFORE_S:
            return False
        past_s = min(past_s, self.since_s)
        # A young run has had few moments for chance; the squares keep the sum over all of them small.
        moments = min(MOMENTS, max(1, int(past_s / NEW_S)) ** 2)
        lasting = fresh >= most_events_after(known, past_s / NEW_S, moments)
        return lasting and now >= TIMES_USUAL_ALL * known / past_s * WINDOW_S

    def _is_alone(self, on: npt.NDArray[np.bool_], fresh: int) -> bool:
        others, times = int(self.newest[~on].sum()), float((~on).sum() / on.sum())
        if fresh < TIMES_USUAL / 2 * others / times:
            return False
        return bool((on & self.odd).any()) or fresh >= most_events_after(others, times, MOMENTS)


def _storm(
    fleet: Fleet, name: str | None, on: npt.NDArray[np.bool_], seen: _Culls, known: Problem | None = None
) -> Problem:
    """The storm of these envs; one that is `known` goes on with what was usual then."""
    counts = fleet.state.envs.culls.recent(fleet.n, fleet.state.last_at)
    events, over = int(counts[on].sum()), int((counts[on] > 0).sum())
    envs = "env" if over == 1 else "envs"
    before, past_s = seen.known(on), float(seen.past_s[on].mean())
    usual = before / past_s * WINDOW_S if known is None or known.usual is None else known.usual
    # Few culls give only an upper bound of the rate.
    most = (before + 3 + (3 * before) ** 0.5) / past_s * WINDOW_S
    rate = f"usual {usual:.1f}" if before >= ENOUGH else f"usual below {most:.1f}"
    return Problem(
        code="cull-storm",
        severity="warning",
        scope="run" if name is None else "gpu",
        subject=name,
        at=fleet.state.last_at,
        message=f"cull storm: {events} culls in {WINDOW_S}s over {over} {envs} ({rate})",
        hint=_why_culled(fleet, on),
        symptoms=int((seen.odd & on).sum()),
        patience=STEADY,
        absorbs=("env-degraded",),
        factors=() if known is None else known.factors,
        usual=usual,
        stands=max(TIMES_USUAL / 2 * usual, CULLS / 2) if known is None else known.stands,
    )


def _groups(fleet: Fleet) -> Iterator[tuple[str | None, npt.NDArray[np.bool_]]]:
    """Envs by lane, in order of first sight; those without a lane last."""
    for code, name in enumerate(fleet.state.lane_names.words):
        on: npt.NDArray[np.bool_] = fleet.lane == code
        if on.any():
            yield name, on
    if (fleet.lane < 0).any():
        yield None, fleet.lane < 0


def _standing_out(fleet: Fleet, anomalies: Anomalies) -> npt.NDArray[np.bool_]:
    """Envs with far more culls or failed gates than the fleet, shape (n,)."""
    odd = np.zeros(fleet.n, dtype=np.bool_)
    for factor in anomalies.factors:
        if factor.name in ("cull rate", "gate fails"):
            odd |= factor.weight > 0
    return odd


def _why_culled(fleet: Fleet, on: npt.NDArray[np.bool_]) -> str:
    """The gate that most of the lane's failing envs failed last, and on what."""
    envs = fleet.state.envs
    failing = np.flatnonzero(on & (envs.gate_fails.recent(fleet.n, fleet.state.last_at) > 0))
    said: dict[str, int] = {}
    for env_id in fleet.ids[failing].tolist():
        check = envs.failed_check.get(env_id)
        words = f"gate {envs.failed_gate[env_id]} fails" + (f" on {check}" if check else "")
        said[words] = said.get(words, 0) + 1
    return max(
        said, key=lambda words: said[words], default="open the env with the most culls: its seeds' events"
    )

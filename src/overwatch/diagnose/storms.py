"""Storms: many crashes or many culls on one lane within a minute. One finding about the lane, not many.

A storm of culls is above what the lane had before, and stands out from the rest of the fleet too: a shared
policy that learns to cull more changes all envs at once, and slowly. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch.diagnose.anomaly import Anomalies
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.problem import STEADY, Problem
from overwatch.diagnose.robust import most_events
from overwatch.state.arrays import Floats, Ints
from overwatch.state.tally import WINDOW_S

CRASHES: Final = 5
"""Crashes in a minute that make a storm, from at least two envs."""
CULLS: Final = 5
NEW_S: Final = 30
"""A storm is judged by its newest half minute against all that was before."""
BEFORE_S: Final = 15.0
"""Least history for a usual rate."""
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
    """Lanes on which seeds are culled far more often than usual; a storm that goes on never becomes usual."""
    culls, state = fleet.state.envs.culls, fleet.state
    if culls.is_quiet(state.last_at) or int(culls.recent(fleet.n, state.last_at).sum()) < CULLS:
        return
    newest = culls.recent(fleet.n, state.last_at, NEW_S)
    odd = _standing_out(fleet, anomalies)
    past_s = _past_s(fleet)
    for name, on in _groups(fleet):
        before_s = float(past_s[on].mean())
        if before_s < BEFORE_S:
            continue
        usual = float(culls.totals[: fleet.n][on].sum() - newest[on].sum()) / before_s * WINDOW_S
        storm = _storm(fleet, name, on, usual, int((odd & on).sum()))
        open_one = standing.get(storm.id)
        if open_one is not None and open_one.usual is not None and open_one.stands is not None:
            if int(newest[on].sum()) * WINDOW_S / NEW_S >= open_one.stands:
                yield _storm(fleet, name, on, open_one.usual, storm.symptoms)
        elif _is_storm(newest, on, usual, bool((odd & on).any())):
            yield storm


def _past_s(fleet: Fleet) -> Floats:
    """How long each env was there before the newest half minute, in seconds, shape (n,)."""
    ages_s: Floats = (fleet.state.last_at - fleet.state.envs.born_at[: fleet.n]) / 1e9
    return np.maximum(ages_s - NEW_S, 0.0)


def _is_storm(newest: Ints, on: npt.NDArray[np.bool_], usual: float, odd: bool) -> bool:  # noqa: FBT001 a fact
    """Whether a lane's newest half minute stands out from its past, and from the fleet."""
    fresh = int(newest[on].sum())
    now = fresh * WINDOW_S / NEW_S
    if fresh < CULLS or now < TIMES_USUAL * usual or fresh < most_events(usual * NEW_S / WINDOW_S, MOMENTS):
        return False
    rate = newest.sum() / max(1, newest.size)
    alone = odd or fresh / int(on.sum()) >= TIMES_USUAL / 2 * rate
    return alone or now >= TIMES_USUAL_ALL * usual


def _storm(fleet: Fleet, name: str | None, on: npt.NDArray[np.bool_], usual: float, symptoms: int) -> Problem:
    counts = fleet.state.envs.culls.recent(fleet.n, fleet.state.last_at)
    events, over = int(counts[on].sum()), int((counts[on] > 0).sum())
    envs = "env" if over == 1 else "envs"
    return Problem(
        code="cull-storm",
        severity="warning",
        scope="run" if name is None else "gpu",
        subject=name,
        at=fleet.state.last_at,
        message=f"cull storm: {events} culls in {WINDOW_S}s over {over} {envs} (usual {usual:.1f})",
        hint=_why_culled(fleet, on),
        symptoms=symptoms,
        patience=STEADY,
        usual=usual,
        stands=max(TIMES_USUAL / 2 * usual, CULLS / 2),
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

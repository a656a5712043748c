"""What is wrong at one tick: the rules about the run and its envs, and how all rules play together.

Causes suppress symptoms: an env that is slow with its lane, a crash within a storm of crashes, a policy row
within a collapse is counted by its cause and has no finding of its own.

Storms: many crashes or many culls on one lane within a minute are one finding about the lane. A storm of
culls is far above what the lane had before, which a shared policy that learns to cull more never is.
Pure; must not know of runs that emit nothing, which are not judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.catalog import BY_NAME
from overwatch.catalog.durations import duration
from overwatch.diagnose.anomaly import Anomalies
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.factors import LEAST_GAPS, OF_EPISODES, OF_STEPS
from overwatch.diagnose.fleet import Fleet, Lull, median_of, most_events_after
from overwatch.diagnose.liveness import (
    LinkJudgement,
    gone_producers,
    outage,
    overlapping_writers,
    wrong_clocks,
)
from overwatch.diagnose.machines import Machines, machine_problems
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.diagnose.services import service_problems
from overwatch.snapshot import Baseline
from overwatch.state.arrays import Ints
from overwatch.state.caps import EVICTED
from overwatch.state.env_tables import WINDOW_S
from overwatch.state.policy import UNDEFINED
from overwatch.state.run import RunState

CRASHES: Final = 5
"""Crashes in a minute that make a storm, from at least two envs."""
CULLS: Final = 5
NEW_S: Final = 30
"""A storm is judged by its newest half minute against all that was before."""
BEFORE_S: Final = 15.0
"""Least history for a usual rate."""
ENOUGH: Final = 4
"""Culls from which a usual rate is known; fewer give only an upper bound."""
MOMENTS: Final = 100
"""Half minutes of a healthy run in which chance must not make a storm."""
TIMES_USUAL: Final = 6.0


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


def cull_storms(fleet: Fleet, standing: Mapping[str, Problem]) -> Iterator[Problem]:
    """Lanes on which seeds are culled far more often than usual; a storm that goes on never becomes usual."""
    culls, state = fleet.state.envs.culls, fleet.state
    if culls.is_quiet(state.last_at) or int(culls.recent(fleet.n, state.last_at).sum()) < CULLS:
        return
    newest, totals = culls.recent(fleet.n, state.last_at, NEW_S), culls.totals[: fleet.n]
    there_s = np.maximum((state.last_at - state.envs.born_at[: fleet.n]) / 1e9 - NEW_S, 0.0)
    # Seeds must be old enough to be culled before their culls have a rate.
    since_s = (state.last_at - min(culls.first_at, state.envs.gated_at or culls.first_at)) / 1e9 - NEW_S
    for name, on in _groups(fleet):
        past_s = min(float(there_s[on].mean()), since_s)
        if past_s < BEFORE_S:
            continue
        fresh = int(newest[on].sum())
        known = int(totals[on].sum()) - fresh
        rate, usual = fresh * WINDOW_S / NEW_S, known / past_s * WINDOW_S
        storm = _storm(fleet, name, on, (known, past_s))
        open_one = standing.get(storm.id)
        if open_one is not None and open_one.usual is not None and open_one.stands is not None:
            if rate >= open_one.stands:
                yield _storm(fleet, name, on, (known, past_s), open_one)
            continue
        # A young run has had few moments for chance; the squares keep the sum over all of them small.
        moments = min(MOMENTS, max(1, int(past_s / NEW_S)) ** 2)
        beyond = fresh >= max(CULLS, most_events_after(known, past_s / NEW_S, moments))
        if beyond and rate >= TIMES_USUAL * usual:
            yield storm


def _storm(
    fleet: Fleet, name: str | None, on: npt.NDArray[np.bool_], past: tuple[int, float],
    known: Problem | None = None,
) -> Problem:  # fmt: skip
    """The storm of a lane that had so many culls in so many seconds; a `known` one goes on as it was."""
    before, past_s = past
    counts = fleet.state.envs.culls.recent(fleet.n, fleet.state.last_at)
    events, over = int(counts[on].sum()), int((counts[on] > 0).sum())
    envs = "env" if over == 1 else "envs"
    usual = before / past_s * WINDOW_S if known is None or known.usual is None else known.usual
    # Few culls give only an upper bound of the rate.
    most = (before + 3 + (3 * before) ** 0.5) / past_s * WINDOW_S
    rate = f"usual {usual:.1f}" if before >= ENOUGH else f"usual below {most:.1f}"
    return Problem(
        code="cull-storm",
        scope="run" if name is None else "gpu",
        subject=name,
        at=fleet.state.last_at,
        message=f"cull storm: {events} culls in {WINDOW_S}s over {over} {envs} ({rate})",
        hint=_why_culled(fleet, on),
        symptoms=over,
        patience=STEADY,
        absorbs=("env-degraded",),
        usual=usual,
        stands=max(TIMES_USUAL / 4 * usual, CULLS / 2) if known is None else known.stands,
    )


def _groups(fleet: Fleet) -> Iterator[tuple[str | None, npt.NDArray[np.bool_]]]:
    """Envs by lane, in order of first sight; those without a lane last."""
    for code, name in enumerate(fleet.state.lane_names.words):
        on: npt.NDArray[np.bool_] = fleet.lane == code
        if on.any():
            yield name, on
    if (fleet.lane < 0).any():
        yield None, fleet.lane < 0


def _why_culled(fleet: Fleet, on: npt.NDArray[np.bool_]) -> str:
    """The gate that most of the lane's failing envs failed last, and on what."""
    envs = fleet.state.envs
    failing = np.flatnonzero(on & (envs.gate_fails.recent(fleet.n, fleet.state.last_at) > 0))
    stated: dict[str, int] = {}
    for env_id in fleet.ids[failing].tolist():
        check = envs.failed_check.get(env_id)
        words = f"gate {envs.failed_gate[env_id]} fails" + (f" on {check}" if check else "")
        stated[words] = stated.get(words, 0) + 1
    return max(
        stated, key=lambda words: stated[words], default="open the env with the most culls: its seeds' events"
    )


_NAMED: Final = 3
SETTLED: Final = Patience(hold=SECOND_NS, clear=10 * SECOND_NS, cooldown=60 * SECOND_NS)
"""Of a judgement against the fleet, of which chance makes some for a moment."""
MAX_ENV_FINDINGS: Final = 20
"""Envs named one by one; more of one kind become one finding about the fleet."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that the rules may look at, at one tick."""

    state: RunState
    fleet: Fleet
    anomalies: Anomalies
    lull: Lull
    machines: Machines
    """Lanes and ranks, with what holds them back."""
    link: LinkJudgement
    limits: AnomalyLimits
    baseline: Baseline | None
    """What the run's throughput is compared with, beside its own best."""
    standing: Mapping[str, Problem]
    """Problems that are open, with what was usual when they opened."""
    policy: Sequence[Problem]
    """What is wrong with the policy."""


def problems(seen: Evidence) -> list[Problem]:
    """Everything that is wrong at this tick, symptoms counted under their causes."""
    state, fleet, limits = seen.state, seen.fleet, seen.limits
    storms = list(crash_storms(fleet))
    found = [*_non_finite(seen), *storms, *_unreported(seen)]
    found += _envs(seen, {storm.subject for storm in storms})
    away = outage(state, seen.link)
    found += [] if away is None else [away]
    found += overlapping_writers(state, seen.link.overlapping)
    found += wrong_clocks(state, seen.link.ahead)
    found += _overflowed(state)
    found += service_problems(state, seen.machines.watched.slow.tick)
    found += machine_problems(state, fleet, seen.machines, limits, seen.baseline)
    culls = list(cull_storms(fleet, seen.standing))
    found += [*culls, *_degraded(seen, {storm.subject for storm in culls})]
    found += seen.policy
    return found


def while_paused(seen: Evidence) -> list[Problem]:
    """What is wrong while a run is paused: what stood of envs and the policy, machines, and who answers.

    Nothing that stands still is wrong, and what stood of the loop is judged again when it goes on.
    """
    state, slow = seen.state, seen.machines.watched.slow
    away = outage(state, seen.link)
    return [
        *(one for one in seen.standing.values() if one.scope in ("env", "policy")),
        *([] if away is None else [away]),
        *overlapping_writers(state, seen.link.overlapping),
        *wrong_clocks(state, seen.link.ahead),
        *service_problems(state, slow.tick),
        *gone_producers(state, slow.gone, slow.tick),
        *slow.hardware,
    ]


def _overflowed(state: RunState) -> Iterator[Problem]:
    """More names or ids than there is room for: they are named, since the cause is elsewhere."""
    if not (state.overflow.counts or state.lane_names.beyond or state.slot_names.beyond):
        return
    kinds = dict(state.overflow.counts)
    names = [name for of_kind in state.overflow.offenders.values() for name in of_kind]
    for kind, words in (("lane", state.lane_names), ("slot", state.slot_names)):
        if words.beyond:
            kinds[kind] = kinds.get(kind, 0) + sum(words.beyond.values())
            names += words.beyond
    counted = ", ".join(_beyond(kind, times) for kind, times in sorted(kinds.items()))
    hint = "names and ids must not carry values; look at who makes these"
    if "env" in kinds or EVICTED in kinds:
        hint += (
            "; an env id that counts episodes makes a new env each time; where all envs are real, raise "
            "exporters.aggregator.max_state_mib"
        )
    yield Problem(
        code="too-many-names",
        at=state.last_at,
        message=f"beyond the limits: {counted}; among them {', '.join(names[:_NAMED])}",
        hint=hint,
    )


def _beyond(kind: str, times: int) -> str:
    return f"{times:,} long silent envs evicted" if kind == EVICTED else f"{kind} {times:,} times"


def _non_finite(seen: Evidence) -> Iterator[Problem]:
    """Facts of late; else rows of the newest update, of any rank, where none came as a fact."""
    state = seen.state
    recent_ns = state.last_at - state.non_finite_at
    if state.non_finite and recent_ns <= int(seen.limits.non_finite_hold_s * 1e9):
        values = "value" if state.non_finite == 1 else "values"
        reported = f"{state.non_finite} non-finite {values}, last {state.non_finite_last}"
        yield _non_finite_problem(seen, state.non_finite_at, reported)
        return
    blank = {
        name: series
        for name, series in state.policy.items()
        if name in BY_NAME and series.non_finite not in (None, UNDEFINED)
    }
    labels = [f"{series.non_finite} in {BY_NAME[name].label}" for name, series in blank.items()]
    labels += [
        f"{word} in {BY_NAME[name].label} of rank {rank}"
        for rank, names in sorted(state.ranks.broken.items())
        for name, word in names.items()
    ]
    if labels:
        at = max((series.at for series in blank.values()), default=state.last_update_at)
        more = "" if len(labels) <= _NAMED else f" and {len(labels) - _NAMED} more"
        yield _non_finite_problem(seen, at, f"non-finite: {', '.join(labels[:_NAMED])}{more}")


def _non_finite_problem(seen: Evidence, at: int, message: str) -> Problem:
    return Problem(
        code="non-finite",
        severity="critical",
        scope="policy",
        at=at,
        message=message,
        hint="stop and reload the last checkpoint; look at the first field that went",
        symptoms=int(seen.anomalies.of_status("diverging").size),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EnvRule:
    status: str
    code: str
    severity: str
    hint: str
    patience: Patience


_ENV_RULES: Final = (
    _EnvRule(
        status="crashed", code="env-crashed", severity="critical", patience=Patience(),
        hint="open the env: last actions, events, traceback",
    ),
    _EnvRule(
        status="diverging", code="env-non-finite", severity="critical", patience=Patience(),
        hint="open the env: field and step",
    ),
    _EnvRule(
        status="stalled", code="env-stalled", severity="warning", patience=STEADY,
        hint="compare its step time with its lane's",
    ),
)  # fmt: skip


def _envs(seen: Evidence, stormy: set[str | None]) -> Iterator[Problem]:
    """Findings about single envs; those of a kind beyond a number become one about the fleet."""
    fleet, anomalies = seen.fleet, seen.anomalies
    if not anomalies.factors:
        return
    for rule in _ENV_RULES:
        rows = anomalies.of_status(rule.status)
        if rule.status == "crashed" and rows.size:
            rows = rows[~_on_lanes(fleet, stormy)[rows]]
        if rows.size > MAX_ENV_FINDINGS:
            yield Problem(
                code=f"{rule.code}-many",
                severity=rule.severity,
                at=fleet.newest_at,
                message=f"{rows.size} of {fleet.n} envs {rule.status}",
                hint=rule.hint,
                symptoms=int(rows.size),
                patience=rule.patience,
                absorbs=(rule.code,),
            )
            continue
        for row in rows.tolist():
            reasons = anomalies.reasons(row)
            crashed_at = int(seen.state.envs.crashed_at[row])
            yield Problem(
                code=rule.code,
                severity=rule.severity,
                scope="env",
                subject=str(int(fleet.ids[row])),
                at=crashed_at if rule.status == "crashed" else fleet.newest_at,
                message=reasons[0],
                hint=rule.hint,
                factors=reasons,
                patience=rule.patience,
            )


ENOUGH_REPORTS: Final = 10
"""Reports, or episodes, of a usual env after which each of the fleet has reported."""
AFTER_S: Final = 20.0
"""The least time for that."""
LEARNED: Final = 4
"""Updates that a policy may learn from what was collected."""


def _unreported(seen: Evidence) -> Iterator[Problem]:
    """Envs of which nothing is received: all of them while updates go on, and those that never reported."""
    state, envs, n = seen.state, seen.state.envs, seen.fleet.n
    promised = state.started.n_envs if state.started is not None else None
    if not n or not state.updates:
        return
    bare = not any((envs.times[name][:n] > 0).any() for name in OF_STEPS)
    learned, for_s = state.updates - seen.lull.updates, (state.last_update_at - seen.lull.at) / 1e9
    usual = max(LEARNED, 2 * seen.lull.usual) * (int(OF_EPISODES) if bare else 1)
    known = len(envs.silences.intervals.items) >= LEAST_GAPS
    if known and learned > usual and for_s >= 2 * seen.limits.silent_s:
        words = f"{n} of {n} envs silent for {duration(for_s)}, in which {learned:,} updates were made"
        yield _stalled_envs(seen, n, words)
    reports = envs.episodes[:n] if bare else envs.silences.gaps[:n]
    missing = (promised or 0) - n - len(envs.gone)
    parts = {start.n_envs for start in state.ranks.starts.values()} if len(state.ranks.starts) > 1 else set()
    if missing <= 0 or n in parts or state.overflow.counts or state.updates < LEARNED:
        return
    since_s = (state.last_at - int(envs.born_at[:n].min())) / 1e9
    if since_s >= AFTER_S and median_of(reports.astype(np.float64)) >= ENOUGH_REPORTS:
        words = f"{missing} of {promised} envs never reported, {n} do"
        yield _stalled_envs(seen, missing, words)


def _stalled_envs(seen: Evidence, count: int, words: str) -> Problem:
    return Problem(
        code="env-stalled-many",
        at=seen.fleet.newest_at,
        message=words,
        hint="look at the workers that step them: are they there, do they hang, what do they log",
        symptoms=count,
        patience=STEADY,
    )


def _degraded(seen: Evidence, stormy: set[str | None]) -> Iterator[Problem]:
    """Envs that do worse than the fleet: one finding for all, less those of a storm, which counts them."""
    fleet, anomalies = seen.fleet, seen.anomalies
    rows = anomalies.of_status("degraded")
    if stormy and rows.size:
        rows = rows[~_on_lanes(fleet, stormy)[rows]]
    if not rows.size:
        return
    worst = sorted(rows.tolist(), key=lambda row: (-float(anomalies.scores[row]), int(fleet.ids[row])))
    first = int(fleet.ids[worst[0]])
    reasons = tuple(f"env {int(fleet.ids[row])}: {anomalies.reasons(row)[0]}" for row in worst[:_NAMED])
    more = f"; and {rows.size - 1} more" if rows.size > 1 else ""
    yield Problem(
        code="env-degraded",
        at=fleet.newest_at,
        message=f"{rows.size} of {fleet.n} envs degraded: {reasons[0]}{more}",
        hint=f"open env {first}: what its reasons name, beside an env that is ok",
        factors=reasons,
        symptoms=int(rows.size),
        patience=SETTLED,
        names=first,
    )


def _on_lanes(fleet: Fleet, lanes: set[str | None]) -> np.ndarray:
    """Which envs are on one of these lanes; `None` is the lane that was not named."""
    on = np.zeros(fleet.n, dtype=np.bool_)
    if None in lanes:
        on |= fleet.lane < 0
    for code, name in enumerate(fleet.state.lane_names.words):
        if name in lanes:
            on |= fleet.lane == code
    return on

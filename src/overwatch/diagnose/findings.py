"""What is wrong at one tick: the rules about the run and its envs, and how all rules play together.

Causes suppress symptoms: an env that is slow with its lane, a crash within a storm of crashes, a policy row
within a collapse is counted by its cause and has no finding of its own.

Storms: many crashes or many culls on one lane within a minute are one finding about the lane. A storm of
culls is far above what the lane had before, which a shared policy that learns to cull more never is.
Pure; must not know of runs that emit nothing, which are not judged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME
from overwatch.catalog.durations import duration
from overwatch.diagnose.anomaly import Anomalies
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.factors import LEAST_GAPS, OF_EPISODES, OF_STEPS
from overwatch.diagnose.fleet import Fleet, most_events
from overwatch.diagnose.liveness import LinkJudgement, gone_producers, line
from overwatch.diagnose.machines import Machines, machine_problems
from overwatch.diagnose.problem import FACT, SECOND_NS, STEADY, Patience, Problem
from overwatch.diagnose.services import service_problems
from overwatch.snapshot import Baseline
from overwatch.state.arrays import Ints
from overwatch.state.caps import EVICTED
from overwatch.state.env_tables import WINDOW_S
from overwatch.state.places import Mask
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
    envs, n = fleet.state.envs, fleet.n
    counts = envs.crash_tally.recent(n, fleet.state.last_at)
    for name, on in _groups(fleet) if envs.crashes else ():
        fell = np.flatnonzero(on & (counts > 0))
        events = int(counts[fell].sum())
        if events < CRASHES or fell.size < 2:
            continue
        # The newest that is down, else the one that crashed most.
        example = int(fleet.ids[fell[np.lexsort((counts[fell], envs.crashed_at[fell]))[-1]]])
        yield Problem(
            code="crash-storm",
            severity="critical",
            scope="run" if name is None else "gpu",
            subject=name,
            at=fleet.state.last_at,
            message=f"crash storm: {events} crashes in {WINDOW_S}s over {fell.size} envs",
            hint=f"open env {example}: last actions, events, traceback",
            names=example,
            symptoms=int((on & (envs.crashed_at[:n] > 0)).sum()),
            absorbs=("env-crashed",),
        )


def cull_storms(fleet: Fleet, standing: Mapping[str, Problem]) -> Iterator[Problem]:
    """Lanes on which seeds are culled far more often than usual; a storm that goes on never becomes usual."""
    culls, at = fleet.state.envs.culls, fleet.state.last_at
    counts, newest = culls.recent(fleet.n, at), culls.recent(fleet.n, at, NEW_S)
    if int(counts.sum()) < CULLS:
        return
    there_s = np.maximum((at - fleet.state.envs.born_at[: fleet.n]) / 1e9 - NEW_S, 0.0)
    # Seeds must be old enough to be culled before their culls have a rate.
    since_s = (at - min(culls.first_at, fleet.state.envs.gated_at or culls.first_at)) / 1e9 - NEW_S
    for name, on in _groups(fleet):
        past_s, fresh = min(float(there_s[on].mean()), since_s), int(newest[on].sum())
        if past_s < BEFORE_S:
            continue
        known = int(culls.totals[: fleet.n][on].sum()) - fresh
        rate, usual = fresh * WINDOW_S / NEW_S, known / past_s * WINDOW_S
        # Few culls give only an upper bound of the rate; those of the other envs now are of the same one.
        calm = known + int(newest[~on].sum())
        most = (calm + 3 + (3 * calm) ** 0.5) / (past_s + NEW_S * (~on).sum() / on.sum()) * WINDOW_S
        over = int((counts[on] > 0).sum())
        envs = "env" if over == 1 else "envs"
        scope = "run" if name is None else "gpu"
        before = standing.get(f"cull-storm:{scope}:{name or ''}")
        if before is not None and before.usual is not None:
            usual = before.usual
            is_storm = rate >= max(TIMES_USUAL / 4 * usual, CULLS / 2)
        else:
            # A young run has had few moments for chance; the squares keep the sum over all of them small.
            moments = min(MOMENTS, max(1, int(past_s / NEW_S)) ** 2)
            least = max(CULLS, most_events(most * NEW_S / WINDOW_S, moments))
            is_storm = fresh >= least and rate >= TIMES_USUAL * usual
        if is_storm:
            was = f"usual {usual:.1f}" if known >= ENOUGH else f"usual below {most:.1f}"
            events = f"{int(counts[on].sum())} culls in {WINDOW_S}s"
            yield Problem(
                code="cull-storm",
                scope=scope,
                subject=name,
                at=at,
                message=f"cull storm: {events} over {over} {envs} ({was})",
                hint=_why_culled(fleet, on),
                symptoms=over,
                patience=STEADY,
                absorbs=("env-degraded",),
                usual=usual,
            )


def _groups(fleet: Fleet) -> Iterator[tuple[str | None, Mask]]:
    """Envs by lane, in order of first sight; those without a lane last."""
    for name in (*fleet.state.lane_names.words, None):
        on = fleet.on_lane(name)
        if on.any():
            yield name, on


def _why_culled(fleet: Fleet, on: Mask) -> str:
    """The gate that most of the lane's failing envs failed last, and on what."""
    envs = fleet.state.envs
    failing = np.flatnonzero(on & (envs.gate_fails.recent(fleet.n, fleet.state.last_at) > 0))
    checks = ((envs.failed_gate[env], envs.failed_check.get(env)) for env in fleet.ids[failing].tolist())
    stated = Counter(f"gate {gate} fails" + (f" on {check}" if check else "") for gate, check in checks)
    return stated.most_common(1)[0][0] if stated else "open the env with the most culls: its seeds' events"


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
    learns: bool
    """Whether the return rises or is at its best."""


def problems(seen: Evidence) -> list[Problem]:
    """Everything that is wrong at this tick, symptoms counted under their causes."""
    state, fleet = seen.state, seen.fleet
    crashes, culls = list(crash_storms(fleet)), list(cull_storms(fleet, seen.standing))
    return [
        *_non_finite(seen),
        *crashes,
        *_unreported(seen),
        *_envs(seen, {"crashed": crashes, "degraded": culls}),
        *line(state, seen.link),
        *_overflowed(state),
        *service_problems(state, seen.machines.watched.slow.tick),
        *machine_problems(fleet, seen.machines, seen.limits, seen.baseline, learns=seen.learns),
        *culls,
        *seen.policy,
    ]


def while_paused(seen: Evidence) -> list[Problem]:
    """What is wrong while a run is paused: what stood of envs and the policy, machines, and who answers.

    Nothing that stands still is wrong, and what stood of the loop is judged again when it goes on.
    """
    state, slow = seen.state, seen.machines.watched.slow
    return [
        *(one for one in seen.standing.values() if one.scope in ("env", "policy")),
        *line(state, seen.link),
        *service_problems(state, slow.tick),
        *gone_producers(state, slow.gone, slow.tick),
        *slow.hardware,
    ]


def _overflowed(state: RunState) -> Iterator[Problem]:
    """More names or ids than there is room for: they are named, since the cause is elsewhere."""
    kinds = Counter(state.overflow.counts)
    names = [name for of_kind in state.overflow.offenders.values() for name in of_kind]
    for kind, words in (("lane", state.lane_names), ("slot", state.slot_names)):
        kinds.update(dict.fromkeys([kind] if words.beyond else (), sum(words.beyond.values())))
        names += words.beyond
    if not kinds:
        return
    counted = ", ".join(
        f"{times:,} long silent envs evicted" if kind == EVICTED else f"{kind} {times:,} times"
        for kind, times in sorted(kinds.items())
    )
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


def _non_finite(seen: Evidence) -> Iterator[Problem]:
    """Facts of late; else rows of the newest update, of any rank, where none came as a fact."""
    state, at = seen.state, seen.state.non_finite_at
    labels = [
        f"{series.non_finite} in {BY_NAME[name].label}"
        for name, series in state.policy.items()
        if name in BY_NAME and series.non_finite not in (None, UNDEFINED)
    ]
    labels += [
        f"{word} in {BY_NAME[name].label} of rank {rank}"
        for rank, names in sorted(state.ranks.broken.items())
        for name, word in names.items()
    ]
    if state.non_finite and state.last_at - at <= int(seen.limits.non_finite_hold_s * 1e9):
        values = "value" if state.non_finite == 1 else "values"
        message = f"{state.non_finite} non-finite {values}, last {state.non_finite_last}"
    elif labels:
        more = "" if len(labels) <= _NAMED else f" and {len(labels) - _NAMED} more"
        at, message = state.last_update_at, f"non-finite: {', '.join(labels[:_NAMED])}{more}"
    else:
        return
    yield Problem(
        code="non-finite",
        severity="critical",
        scope="policy",
        at=at,
        message=message,
        hint="stop and reload the last checkpoint; look at the first field that went",
        symptoms=int(seen.anomalies.of_status("diverging").size),
    )


_ENV_RULES: Final = (
    ("crashed", "env-crashed", "critical", FACT, "open the env: last actions, events, traceback"),
    ("diverging", "env-non-finite", "critical", FACT, "open the env: field and step"),
    ("stalled", "env-stalled", "warning", STEADY, "compare its step time with its lane's"),
)
"""Status, code, severity, patience and hint of what an env alone has."""


def _envs(seen: Evidence, storms: Mapping[str, Sequence[Problem]]) -> Iterator[Problem]:
    """Findings about single envs, less those of a storm, which counts them; of many one about the fleet.

    Envs that do worse than the others are one finding from the first on.
    """
    fleet, anomalies = seen.fleet, seen.anomalies
    for status, code, severity, patience, hint in _ENV_RULES:
        rows = _rows(seen, status, storms)
        if rows.size > MAX_ENV_FINDINGS:
            yield Problem(
                code=f"{code}-many", severity=severity, at=fleet.newest_at,
                message=f"{rows.size} of {fleet.n} envs {status}", hint=hint, symptoms=int(rows.size),
                patience=patience, absorbs=(code,),
            )  # fmt: skip
            continue
        for row in rows.tolist():
            reasons, crashed_at = anomalies.reasons(row), int(seen.state.envs.crashed_at[row])
            yield Problem(
                code=code, severity=severity, scope="env", subject=str(int(fleet.ids[row])),
                at=crashed_at if status == "crashed" else fleet.newest_at, message=reasons[0], hint=hint,
                factors=reasons, patience=patience,
            )  # fmt: skip
    rows = _rows(seen, "degraded", storms)
    if rows.size:
        worst = rows[np.lexsort((fleet.ids[rows], -anomalies.scores[rows]))].tolist()
        first = int(fleet.ids[worst[0]])
        reasons = tuple(f"env {int(fleet.ids[row])}: {anomalies.reasons(row)[0]}" for row in worst[:_NAMED])
        more = f"; and {rows.size - 1} more" if rows.size > 1 else ""
        yield Problem(
            code="env-degraded", at=fleet.newest_at, symptoms=int(rows.size), patience=SETTLED, names=first,
            message=f"{rows.size} of {fleet.n} envs degraded: {reasons[0]}{more}", factors=reasons,
            hint=f"open env {first}: what its reasons name, beside an env that is ok",
        )  # fmt: skip


def _rows(seen: Evidence, status: str, storms: Mapping[str, Sequence[Problem]]) -> Ints:
    """Envs of a status that are on no lane with a storm of it."""
    rows = seen.anomalies.of_status(status)
    for storm in storms.get(status, ()):
        rows = rows[~seen.fleet.on_lane(storm.subject)[rows]]
    return rows


ENOUGH_REPORTS: Final = 10
"""Reports, or episodes, of a usual env after which each of the fleet has reported."""
AFTER_S: Final = 20.0
"""The least time for that."""
LEARNED: Final = 4
"""Updates that a policy may learn from what was collected."""


def _unreported(seen: Evidence) -> Iterator[Problem]:
    """Envs of which nothing is received: all of them while updates go on, and those that never reported."""
    state, envs, n, past = seen.state, seen.state.envs, seen.fleet.n, seen.fleet.past
    promised = state.started.n_envs if state.started is not None else None
    if not n or not state.updates:
        return
    bare = not any((envs.times[name][:n] > 0).any() for name in OF_STEPS)
    learned, for_s = state.updates - past.updates, (state.last_update_at - past.seen_at) / 1e9
    usual = max(LEARNED, 2 * past.most_updates) * (int(OF_EPISODES) if bare else 1)
    known = len(envs.silences.intervals.items) >= LEAST_GAPS
    reports = envs.episodes[:n] if bare else envs.silences.gaps[:n]
    missing = (promised or 0) - n - len(envs.gone)
    # Who knows no envs reports all episodes as of one.
    parts = {1, *(start.n_envs for start in state.ranks.starts.values() if len(state.ranks.starts) > 1)}
    is_whole = missing > 0 and n not in parts and not state.overflow.counts and state.updates >= LEARNED
    since_s = (state.last_at - int(envs.born_at[:n].min())) / 1e9
    if known and learned > usual and for_s >= 2 * seen.limits.silent_s:
        count, words = (
            n,
            f"{n} of {n} envs silent for {duration(for_s)}, in which {learned:,} updates were made",
        )
    elif is_whole and since_s >= AFTER_S and np.median(reports) >= ENOUGH_REPORTS:
        count, words = missing, f"{missing} of {promised} envs never reported, {n} do"
    else:
        return
    yield Problem(
        code="env-stalled-many",
        at=seen.fleet.newest_at,
        message=words,
        hint="look at the workers that step them: are they there, do they hang, what do they log",
        symptoms=count,
        patience=STEADY,
    )

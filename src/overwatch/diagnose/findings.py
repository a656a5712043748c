"""What is wrong at one tick: the rules about the run and its envs, and how all rules play together.

Causes suppress symptoms: an env that is slow with its lane, a crash within a storm of crashes, a policy row
within a collapse is counted by its cause and has no finding of its own. Pure; must not know of runs that emit
nothing, which are not judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME
from overwatch.diagnose.anomaly import Anomalies, AnomalyLimits
from overwatch.diagnose.converged import WARM_UP_UPDATES
from overwatch.diagnose.experience import experience_problems
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.follow import LINGER_NS, Open
from overwatch.diagnose.link import LinkJudgement
from overwatch.diagnose.machines import Machines, machine_problems
from overwatch.diagnose.overlap import overlapping_writers
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.diagnose.services import service_problems
from overwatch.diagnose.silence import outage
from overwatch.diagnose.skew import wrong_clocks
from overwatch.diagnose.storms import crash_storms, cull_storms
from overwatch.snapshot import Baseline
from overwatch.state.caps import EVICTED
from overwatch.state.policy import UNDEFINED
from overwatch.state.run import RunState

__all__ = ["LINGER_NS", "WARM_UP_UPDATES", "Evidence", "Open", "Problem", "problems"]

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


def problems(seen: Evidence) -> list[Problem]:
    """Everything that is wrong at this tick, symptoms counted under their causes."""
    state, fleet, limits = seen.state, seen.fleet, seen.limits
    storms = list(crash_storms(fleet))
    found = [*_non_finite(seen), *storms]
    found += _envs(seen, {storm.subject for storm in storms})
    away = outage(state, seen.link)
    found += [] if away is None else [away]
    found += overlapping_writers(state, seen.link.overlapping)
    found += wrong_clocks(state, seen.link.ahead)
    found += _overflowed(state)
    found += service_problems(state, seen.machines.watched.slow.tick)
    found += experience_problems(state, seen.machines.watched.slow.tick)
    found += machine_problems(state, fleet, seen.machines, limits, seen.baseline)
    culls = list(cull_storms(fleet, seen.anomalies, seen.standing))
    found += [*culls, *_degraded(seen, {storm.subject for storm in culls})]
    found += seen.policy
    return found


def _overflowed(state: RunState) -> Iterator[Problem]:
    """More names or ids than there is room for: who brought them is said, since the cause is elsewhere."""
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
        severity="warning",
        scope="run",
        subject=None,
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
        told = f"{state.non_finite} non-finite {values}, last {state.non_finite_last}"
        yield _non_finite_problem(seen, state.non_finite_at, told)
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
        subject=None,
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
                scope="run",
                subject=None,
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
        severity="warning",
        scope="run",
        subject=None,
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

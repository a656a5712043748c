"""What is wrong, as findings: opened by rules, kept while their cause lasts, cleared with a linger.

A rule lists what is wrong now; `follow` joins that with what was open before, so that `since` is the
first moment and a flicker can be read. Liveness suppresses the rest: a silent run is not judged. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME
from overwatch.diagnose.anomaly import Anomalies, AnomalyLimits
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.link import LinkJudgement
from overwatch.state.judge import Status
from overwatch.state.run import RunState

WARM_UP_UPDATES: Final = 20
LINGER_NS: Final = 5_000_000_000
MAX_ENV_FINDINGS: Final = 20
"""Envs named one by one; more of one kind become one finding about the fleet."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong now."""

    code: str
    severity: str
    scope: str
    subject: str | None
    at: int
    """Producer's or receive time at which it became true, Unix ns."""
    message: str
    hint: str
    factors: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Stable identity: what, about whom."""
        return f"{self.code}:{self.scope}:{self.subject or ''}"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that is or was just now true."""

    problem: Problem
    since: int
    cleared_at: int | None = None


def problems(
    state: RunState, fleet: Fleet, anomalies: Anomalies, link: LinkJudgement, limits: AnomalyLimits
) -> list[Problem]:
    """Everything that is wrong at this tick."""
    if link.state in ("stale", "lost"):
        return [_silent_run(state, link)]
    found = [*_failed(state), *_non_finite(state, limits)]
    found += [*_envs(state, fleet, anomalies), *_policy(state)]
    return found


def follow(previous: Mapping[str, Open], now: list[Problem], tick: int) -> dict[str, Open]:
    """Findings after this tick: new ones open, gone ones clear and leave after the linger."""
    current: dict[str, Open] = {}
    for problem in now:
        before = previous.get(problem.id)
        since = before.since if before is not None and before.cleared_at is None else problem.at
        current[problem.id] = Open(problem=problem, since=since)
    for key, before in previous.items():
        if key in current:
            continue
        cleared_at = tick if before.cleared_at is None else before.cleared_at
        if tick - cleared_at < LINGER_NS:
            current[key] = Open(problem=before.problem, since=before.since, cleared_at=cleared_at)
    return current


def _silent_run(state: RunState, link: LinkJudgement) -> Problem:
    lost = link.state == "lost"
    return Problem(
        code="run-lost" if lost else "telemetry-stale",
        severity="critical",
        scope="run",
        subject=None,
        at=state.last_stamp,
        message="run lost: no end record" if lost else "no telemetry; process state unknown",
        hint="look at the trainer's process and its log",
    )


def _failed(state: RunState) -> Iterator[Problem]:
    finished = state.finished
    if finished is not None and finished.outcome == "failed":
        yield Problem(
            code="run-failed",
            severity="critical",
            scope="run",
            subject=None,
            at=finished.at,
            message=f"run failed: {finished.reason or 'no reason given'}",
            hint="read the trainer's log",
        )


def _non_finite(state: RunState, limits: AnomalyLimits) -> Iterator[Problem]:
    recent_ns = state.last_at - state.non_finite_at
    if not state.non_finite or recent_ns > int(limits.non_finite_hold_s * 1e9):
        return
    values = "value" if state.non_finite == 1 else "values"
    yield Problem(
        code="non-finite",
        severity="critical",
        scope="policy",
        subject=None,
        at=state.non_finite_at,
        message=f"{state.non_finite} non-finite {values}, last {state.non_finite_last}",
        hint="stop and reload the last checkpoint; look at the first field that went",
    )


_ENV_RULES: Final = (
    ("crashed", "env-crashed", "critical", "open the env: last actions, events, traceback"),
    ("diverging", "env-non-finite", "critical", "open the env: field and step"),
    ("stalled", "env-stalled", "warning", "compare its step time with its lane's"),
)


def _envs(state: RunState, fleet: Fleet, anomalies: Anomalies) -> Iterator[Problem]:
    rows = anomalies.offenders().tolist()
    by_status: dict[str, list[int]] = {}
    for row in rows:
        by_status.setdefault(anomalies.status(row), []).append(row)
    for status, code, severity, hint in _ENV_RULES:
        hit = by_status.get(status, [])
        if len(hit) > MAX_ENV_FINDINGS:
            yield Problem(
                code=f"{code}-many",
                severity=severity,
                scope="run",
                subject=None,
                at=fleet.newest_at,
                message=f"{len(hit)} of {fleet.n} envs {status}",
                hint=hint,
            )
            continue
        for row in hit:
            reasons = anomalies.reasons(row)
            at = int(state.envs.crashed_at[row]) if status == "crashed" else fleet.newest_at
            yield Problem(
                code=code,
                severity=severity,
                scope="env",
                subject=str(int(fleet.ids[row])),
                at=at,
                message=reasons[0],
                hint=hint,
                factors=reasons,
            )


def _policy(state: RunState) -> Iterator[Problem]:
    if state.updates < WARM_UP_UPDATES:
        return
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or series.non_finite is not None or series.value is None:
            continue
        needed, window = row.hold
        recent = series.statuses.items[-window:]
        bad = sum(status > Status.OK for status in recent)
        if bad < needed or series.judgement is None:
            continue
        critical = sum(status == Status.CRITICAL for status in recent) >= needed
        yield Problem(
            code=f"policy-{row.short.replace('_', '-')}",
            severity="critical" if critical else "warning",
            scope="policy",
            subject=row.short,
            at=series.at,
            message=f"{row.label} beyond its limit in {bad} of the last {len(recent)} updates",
            hint=row.fix,
        )

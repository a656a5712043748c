"""Findings, the verdict line and the feed, as a view may show them."""

from typing import Final

from overwatch.catalog import BY_NAME
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.findings import WARM_UP_UPDATES, Open
from overwatch.projection.text import safe, safe_fields, safe_or_none
from overwatch.snapshot import FeedLine, Finding, Subject, Verdict
from overwatch.state.run import Entry, RunState

FEED_LINES: Final = 100
CAUSES: Final = 3
CAUSE_CELLS: Final = 45
_RANK: Final = {"critical": 0, "warning": 1, "info": 2}


def findings_view(judged: Judged) -> tuple[Finding, ...]:
    """Open findings by severity, older first; then those that just cleared."""
    ordered = sorted(
        judged.assessment.findings.values(),
        key=lambda item: (
            item.cleared_at is not None,
            _RANK[item.problem.severity],
            item.since,
            item.problem.id,
        ),
    )
    return tuple(_finding(item) for item in ordered)


def _finding(item: Open) -> Finding:
    problem = item.problem
    return Finding(
        id=safe(problem.id),
        code=problem.code,
        severity=problem.severity,
        subject=Subject(scope=problem.scope, id=safe_or_none(problem.subject)),
        since=item.since / 1e9,
        message=safe(problem.message),
        hint=safe(problem.hint),
        factors=tuple(safe(factor) for factor in problem.factors),
        cleared_at=None if item.cleared_at is None else item.cleared_at / 1e9,
    )


def verdict_view(state: RunState, judged: Judged, findings: tuple[Finding, ...]) -> Verdict:
    """The banner: the worst severity, up to three causes, and counts."""
    open_now = [finding for finding in findings if finding.cleared_at is None]
    counts = {
        word: sum(finding.severity == word for finding in open_now)
        for word in _RANK
        if any(finding.severity == word for finding in open_now)
    }
    if not open_now:
        return Verdict(severity="ok", text=_healthy(state, judged))
    said = " · ".join(_cause(state, finding) for finding in open_now[:CAUSES])
    return Verdict(severity=open_now[0].severity, text=said, counts=counts)


def _cause(state: RunState, finding: Finding) -> str:
    subject = finding.subject
    if subject.scope == "env":
        text = f"env {subject.id} {finding.message}"
    elif subject.scope == "policy" and subject.id is not None:
        text = _policy_cause(state, subject.id)
    else:
        text = finding.message
    return text if len(text) <= CAUSE_CELLS else text[: CAUSE_CELLS - 1] + "…"


def _policy_cause(state: RunState, short: str) -> str:
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or row.short != short or series.value is None:
            continue
        value = format(series.value, row.banner_fmt or row.fmt) + row.suffix
        judgement = series.judgement
        if judgement is None or judgement.threshold is None:
            return f"{row.label} {value}"
        side = "above" if series.value >= judgement.threshold else "below"
        return f"{row.label} {value} {side} {judgement.threshold:.3g}"
    return short


def _healthy(state: RunState, judged: Judged) -> str:
    if judged.link.state == "ended":
        outcome = state.finished.outcome if state.finished else "ended"
        return f"run {outcome} after {state.updates} updates"
    envs = f"{state.envs.n} env" if state.envs.n else "policy"
    if state.updates < WARM_UP_UPDATES:
        return f"collecting; limits are judged after {WARM_UP_UPDATES} updates"
    return f"{envs}, policy healthy" if state.envs.n else "policy healthy"


def feed_view(state: RunState) -> tuple[FeedLine, ...]:
    """The newest lines of the feed, oldest first."""
    return tuple(_line(state, entry) for entry in state.feed.items[-FEED_LINES:])


def _line(state: RunState, entry: Entry) -> FeedLine:
    return FeedLine(
        time=entry.at / 1e9,
        severity=entry.severity,
        subsystem=safe(entry.subsystem),
        message=safe(entry.message),
        env_id=entry.env_id,
        gpu_id=_lane_of(state, entry.env_id),
        slot=safe_or_none(entry.slot),
        seed_id=safe_or_none(entry.seed_id),
        kind=entry.kind,
        fields=safe_fields(entry.fields),
    )


def _lane_of(state: RunState, env_id: int | None) -> str | None:
    if env_id is None:
        return None
    row = state.envs.find(env_id)
    lane = -1 if row is None else int(state.envs.lane[row])
    return None if lane < 0 else safe(state.lane_names.words[lane])

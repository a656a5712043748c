"""Findings and the verdict line, as a view may show them."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, NO_LIMITS, Scope, find
from overwatch.catalog.durations import duration
from overwatch.catalog.policy import RETURN
from overwatch.catalog.runbooks import runbook
from overwatch.catalog.titles import PHRASES
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.liveness import OVER, line_problems
from overwatch.diagnose.policy_rows import WARM_UP_UPDATES, is_warm
from overwatch.diagnose.problem import Open, rank_of
from overwatch.projection.policy import shown, trend
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import Advice, Finding, Subject, Verdict
from overwatch.state.run import RunState

CAUSES: Final = 3
CAUSE_CELLS: Final = 45
"""Room of a cause of which there is a longer and a shorter way to write it."""
MOST_CELLS: Final = 160
"""A cause is kept so long: what it is drawn in cuts it further, and a recording stays bounded."""
FEW_UPDATES: Final = 3
"""Updates after which what matters has come, if it comes at all."""
NAMED: Final = 4
"""Names that a verdict lists."""
GAP: Final = "no alarm is raised for the gap itself"
_RANK: Final = {"critical": 0, "warning": 1, "info": 2}


def titled(finding: Finding) -> str:
    """A finding by its name in words, with what it is about: `thermal throttle on gpu1`, `env 17 crashed`."""
    subject, phrase = finding.subject, PHRASES.get(finding.code)
    row = find(subject.id or "", Scope.POLICY) if subject.scope == "policy" else None
    if row is not None and finding.code.startswith("policy-"):
        return f"{row.label} beyond its limit"
    name = finding.code.replace("-", " ") if phrase is None else phrase
    if subject.id is None or (subject.scope == "policy" and phrase is not None):
        return name
    if subject.scope == "env":
        return f"env {subject.id} {name.removeprefix('env ')}"
    return f"{name} on {subject.id}" if row is None else f"{name} of {row.label}"


def findings_view(state: RunState, judged: Judged) -> tuple[Finding, ...]:
    """Open findings, the worst first; then those that just cleared."""
    ended_at = None
    if judged.link.state in OVER:
        ended_at = (state.last_at if state.finished is None else state.finished.at) / 1e9
    ordered = sorted(judged.assessment.findings.values(), key=rank_of)
    # That it is lost was found when nothing came any more: this goes on.
    return tuple(_finding(item, None if item.problem.code == "run-lost" else ended_at) for item in ordered)


def _finding(item: Open, ended_at: float | None) -> Finding:
    problem = item.problem
    return Finding(
        id=safe(problem.id),
        code=problem.code,
        severity=problem.severity,
        subject=Subject(scope=problem.scope, id=safe_or_none(problem.subject)),
        since=item.since / 1e9,
        message=f"{safe(problem.message)}{_pause_within(item)}",
        hint=safe(problem.hint),
        factors=tuple(safe(factor) for factor in problem.factors),
        symptoms=problem.symptoms,
        acknowledged=item.acknowledged,
        runbook=_advice(problem.code),
        cleared_at=None if item.cleared_at is None else item.cleared_at / 1e9,
        ended_at=None if item.cleared_at is not None else ended_at,
    )


@lru_cache(maxsize=256)
def _advice(code: str) -> Advice | None:
    book = runbook(code)
    return None if book is None else Advice(means=book.means, confirm=book.confirm, act=book.act)


def _pause_within(item: Open) -> str:
    """What of the time that a finding was open is a pause, of a second or more."""
    paused_s = item.paused_ns / 1e9
    return f" (paused for {duration(paused_s)} of the time)" if paused_s >= 1 else ""


def verdict_view(state: RunState, judged: Judged, findings: tuple[Finding, ...]) -> Verdict:
    """The banner: the worst severity that is not acknowledged, up to three causes, and counts."""
    open_now = [finding for finding in findings if finding.cleared_at is None and not finding.acknowledged]
    seen = sum(finding.cleared_at is None for finding in findings) - len(open_now)
    return msgspec.structs.replace(_verdict(state, judged, open_now, seen), acknowledged=seen)


def _verdict(state: RunState, judged: Judged, open_now: list[Finding], seen: int) -> Verdict:
    counts = {
        word: sum(finding.severity == word for finding in open_now)
        for word in _RANK
        if any(finding.severity == word for finding in open_now)
    }
    of_the_line = _about_the_line(state, judged, open_now, counts)
    if of_the_line is not None:
        return of_the_line
    if judged.link.state in OVER:
        return _at_the_end(state, judged, open_now, counts)
    paused = _paused(state)
    if paused and not open_now:
        return Verdict(severity="info", text=paused)
    if not open_now and seen:
        return Verdict(severity="ok", text=f"nothing new; {seen} acknowledged")
    unjudged = _unjudged(state) if not open_now and judged.link.state != "ended" else None
    if unjudged is not None:
        return Verdict(severity="info", text=unjudged)
    if not open_now:
        warming = not is_warm(state)
        return Verdict(severity="ok", text=_healthy(state, judged), note="warm-up" if warming else None)
    waiting = [name for name, bound in judged.bounds.items() if bound.state == "SYNC-BOUND"]
    causes = [_cut(_cause(state, finding, waiting)) for finding in open_now[:CAUSES]]
    text = " · ".join([paused, *causes] if paused else causes)
    return Verdict(severity=open_now[0].severity, text=text, counts=counts)


def _paused(state: RunState) -> str:
    """Since when the run is paused; empty where it is not."""
    if state.paused_at is None:
        return ""
    since = f"{datetime.fromtimestamp(state.paused_at // 10**9, UTC):%H:%M:%SZ}"
    return f"paused for {duration(max(0, state.last_at - state.paused_at) / 1e9)}, since {since}"


def _about_the_line(
    state: RunState, judged: Judged, open_now: list[Finding], counts: dict[str, int]
) -> Verdict | None:
    """The verdict where what is shown is old: how old, and nothing that would be read off old values."""
    link = judged.link
    if link.state not in ("stale", "silent", "catching_up"):
        return None
    at = f"{datetime.fromtimestamp(state.last_at // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
    if link.state != "catching_up":
        (quiet,) = line_problems(state, link)
        text = safe(quiet.message.replace("last record from", f"last record {at} from"))
        note = f"everything below is {duration(link.data_age_s)} old"
        return Verdict(severity=quiet.severity, text=text, note=note, counts=counts)
    if any(finding.severity != "info" for finding in open_now):
        return None
    if link.away_s is None:
        return Verdict(severity="warning", text=f"telemetry comes {duration(link.lag_s)} late; showing {at}")
    pace = "" if link.speed is None else f", catching up at {link.speed:.{0 if link.speed >= 2 else 1}f}x"
    text = f"the collector was away for {duration(link.away_s)}; showing {at}{pace}"
    return Verdict(severity="warning", text=text, note=GAP, counts=counts)


def _at_the_end(state: RunState, judged: Judged, open_now: list[Finding], counts: dict[str, int]) -> Verdict:
    """How the run ended, and what stood then: the end heals nothing, and nothing after it is judged."""
    causes = {problem.id for problem in line_problems(state, judged.link)}
    head = next((finding.message for finding in open_now if finding.id in causes), None)
    stood = [one for one in open_now if one.severity != "info" and one.id not in causes]
    # Where files are all that is known of a program, it may have crashed.
    is_known = state.finished is None or state.finished.outcome != "ended"
    severity = "critical" if head else stood[0].severity if stood else "ok" if is_known else "info"
    if not stood:
        return Verdict(severity=severity, text=head or _ended(state, whole=True), counts=counts)
    named = []
    for one in stood[:CAUSES]:
        is_row = one.code.startswith("policy-") and one.subject.id is not None
        name = _policy_cause(state, one.subject.id or "") if is_row else titled(one)
        open_for = duration(max(0.0, (one.ended_at or one.since) - one.since))
        named.append(f"{_cut(name)} (open {open_for})")
    text = f"{head or _ended(state)}; ended in {' · '.join(named)}"
    return Verdict(severity=severity, text=text, counts=counts)


def _ended(state: RunState, *, whole: bool = False) -> str:
    """`completed`, with the reason where there is one; as a whole sentence where it is all there is."""
    finished = state.finished
    outcome = safe(finished.outcome) if finished else "lost"
    because = f": {safe(finished.reason)}" if finished and finished.reason else ""
    return f"run {outcome} after {state.updates} updates{because}" if whole else f"{outcome}{because}"


def _cause(state: RunState, finding: Finding, waiting: list[str]) -> str:
    subject = finding.subject
    if subject.scope == "env":
        return f"env {subject.id} {finding.message}"
    if subject.scope == "gpu" and subject.id is not None:
        return _lane_cause(finding.code, subject.id, waiting) or f"{subject.id} {finding.message}"
    if finding.code.startswith("policy-") and subject.id is not None:
        return _policy_cause(state, subject.id)
    return finding.message


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CELLS else text[: MOST_CELLS - 1] + "…"


def _lane_cause(code: str, lane: str, waiting: list[str]) -> str | None:
    """A lane's fault in a few words, with the one lane that waits for it."""
    if code.endswith("-storm"):
        return f"{code.replace('-', ' ')} on {lane}"
    names = {"thermal-throttle": "is throttled (thermal)", "power-throttle": "is throttled (power)"}
    state_words = {**names, "straggler": "is a straggler", "oom-forecast": "runs out of memory"}.get(code)
    if state_words is None:
        return None
    alone = f"{lane} {state_words}"
    if len(waiting) != 1 or code == "oom-forecast":
        return alone
    longer = (f"{alone} and {safe(waiting[0])} waits{more}" for more in (" for it", ""))
    return next((text for text in longer if len(text) <= CAUSE_CELLS), alone)


def _policy_cause(state: RunState, short: str) -> str:
    for name, series in state.policy.items():
        row = BY_NAME.get(name)
        if row is None or row.short != short or row.scope is not Scope.POLICY or series.value is None:
            continue
        value = shown(series.value, row.banner_fmt or row.fmt)
        judgement = series.judgement
        if judgement is None or judgement.threshold is None or judgement.limit is None:
            return f"{row.label} {value}{row.suffix}"
        threshold = judgement.threshold
        scale, unit = (100, "%") if row.fmt.endswith("%") else (1, "")
        limit = f"{scale * threshold:.3g}{unit}"
        if series.value == threshold:
            value = limit
        for digits in range(3, _EXACT) if series.value != threshold else ():
            if not _is_same(value, limit):
                break
            value, limit = (f"{scale * one:.{digits}g}{unit}" for one in (series.value, threshold))
        value += row.suffix
        arrow = {"up": "↑", "down": "↓"}.get(trend(series.history.items) or "", "")
        side = "above" if judgement.limit.side.is_above else "below"
        if judgement.limit.side.crossed(series.value, threshold):
            if series.value == threshold:
                return f"{row.label}{arrow} at its limit {value}"
            return f"{row.label} {value}{arrow} {side} {limit}"
        return f"{row.label} was {side} {limit}, now {value}{arrow}"
    return short


_EXACT: Final = 18
"""Digits by which any two floats differ."""


def _is_same(value: str, limit: str) -> bool:
    """Whether two numbers read alike, though they may be written otherwise."""
    try:
        return float(value.rstrip("%")) == float(limit.rstrip("%"))
    except ValueError:
        return False


def _unjudged(state: RunState) -> str | None:
    """What to send, where no value of the updates can be judged; `None` where one can.

    Returns of envs or episodes can be judged, a proxy beside a true return, and every row with limits.
    """
    if state.updates < FEW_UPDATES or state.pairs.total or state.envs.episodes[: state.envs.n].any():
        return None
    rows = [(name, BY_NAME.get(name)) for name in state.policy]
    if any(row is not None and (row is RETURN or state.limits(row) != NO_LIMITS) for _, row in rows):
        return None
    names = sorted(name.removeprefix(CUSTOM_PREFIX) if row is None else row.short for name, row in rows)
    listed = ", ".join(safe(name) for name in names[:NAMED])
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    received = f"; received only {listed}{more}" if names else ""
    return f"nothing to judge yet: send return_ and kl_divergence, or what your library calls them{received}"


def _healthy(state: RunState, judged: Judged) -> str:
    if not is_warm(state):
        return f"collecting; limits are judged after {WARM_UP_UPDATES} updates"
    lanes, unwell = len(judged.bounds), int(judged.anomalies.offenders().size)
    envs = f"{state.envs.n - unwell} of {state.envs.n} env" if unwell else f"{state.envs.n} env"
    parts = [envs] if state.envs.n else []
    parts += ["policy"] if state.policy else []
    parts += [f"{lanes} {'lane' if lanes == 1 else 'lanes'}"] if lanes else []
    if lanes and len(parts) > 1:
        return f"{', '.join(parts[:-1])} and {parts[-1]} healthy"
    return f"{', '.join(parts)} healthy" if parts else "nothing to judge yet"

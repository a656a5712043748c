"""The end of a run in five lines, for its trainer's terminal: how, how well, open problems, where time went.

Made of the run's last snapshot, or of what its trainer knows by itself where no collector answered. Pure.
Must not know who prints it.
"""

from collections.abc import Iterator
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Finding, Snapshot

_ORDER: Final = {"critical": 0, "warning": 1, "info": 2}
_ENDS: Final = frozenset({"run-failed", "run-lost"})
"""Findings that are the end itself, which the first line has."""
_SHARES: Final = 4
"""Phases that are named; the others are one."""
_TEXT: Final = 160
"""Most characters of what a program gave as its reason."""


def card(snapshot: Snapshot, look: str, best: str | None = None) -> list[str]:
    """The lines of a run that a collector knows.

    `look` is the command that shows more, `best` the run's best return, where that is known.
    """
    run = snapshot.run
    return [
        f"run {run.run_id} {ending(run.outcome, run.reason, _extent(snapshot))}",
        f"  return    {_return(snapshot, best)}",
        f"  problems  {_stood(snapshot)}",
        f"  time      {_time(snapshot)}",
        f"  look      {look}",
    ]


def ending(outcome: str | None, reason: str | None, extent: str = "") -> str:
    """`failed after 9 updates, 12s: ValueError: no reward`; the first line of the reason."""
    line = (reason or "").strip().partition("\n")[0]
    return f"{outcome or 'goes on'}{extent}" + (f": {line[:_TEXT]}" if line else "")


def _extent(snapshot: Snapshot) -> str:
    elapsed_s, done = snapshot.run.elapsed_s, snapshot.updates_done
    after = "" if done is None else f" after {done:,} {'update' if done == 1 else 'updates'}"
    return f"{after}{'' if elapsed_s is None else f', {duration(elapsed_s)}'}"


def _return(snapshot: Snapshot, best: str | None) -> str:
    found = snapshot.policy.get("return")
    if found is None or found.value is None:
        return "none was sent: run.update(return_=...) or run.episodes(...) adds it"
    return found.text + ("" if best is None else f", best {best}")


def _stood(snapshot: Snapshot) -> str:
    """The worst that was open at the end, and how much more was."""
    standing = [one for one in snapshot.findings if one.cleared_at is None and one.code not in _ENDS]
    standing.sort(key=lambda one: (_ORDER.get(one.severity, len(_ORDER)), one.since, one.id))
    if not standing:
        return "no other" if snapshot.run.outcome in ("failed", "lost") else "none"
    more = f" · {len(standing) - 1} more" if len(standing) > 1 else ""
    return f"{_finding(standing[0], snapshot.time)}{more}"


def _finding(finding: Finding, now: float) -> str:
    end = now if finding.ended_at is None else finding.ended_at
    subject = "" if finding.subject.id is None else f"{finding.subject.scope} {finding.subject.id}: "
    open_for = duration(max(0.0, end - finding.since))
    return f"{finding.severity.upper()} {subject}{finding.message} (open {open_for} at the end)"


def _time(snapshot: Snapshot) -> str:
    """The shares of the phases of the loop."""
    shares = list(_shares(snapshot))
    return ", ".join(shares) or "not known: `with run.phase(...)` measures it"


def _shares(snapshot: Snapshot) -> Iterator[str]:
    phases = sorted(snapshot.phases, key=lambda one: (-one.total_s, one.name))
    whole = sum(one.total_s for one in phases)
    if not whole > 0:
        return
    for one in phases[:_SHARES]:
        yield f"{one.name} {one.total_s / whole:.0%}"
    rest = sum(one.total_s for one in phases[_SHARES:])
    if rest:
        yield f"other {rest / whole:.0%}"

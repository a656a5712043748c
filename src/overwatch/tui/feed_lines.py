"""The feed's lines that this terminal has seen, which of them to show, and which of them a finding is about.

Owns what the toggles and the search mean. Must not know keys, nor how a line is drawn.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from overwatch.snapshot import FeedLine, Finding, Snapshot

KEPT: Final = 2000
TOGGLES: Final = ("errors", "seeds", "policy", "log")
_SEEDS: Final = frozenset({"seed_stage_changed", "gate_evaluated"})
_FREQUENT: Final = _SEEDS | {"measured"}
_ALARMS: Final = frozenset({"warning", "critical"})
_ENDS: Final = (">FOSSILIZED", ">PRUNED")
_DEBUG: Final = frozenset({"debug", "trace"})
_POLICY: Final = frozenset({"early_stopped", "curriculum_changed", "non_finite_seen", "measured"})
_BEFORE_S: Final = 10.0
"""What led to a finding was logged so long before it at most: a finding has to hold before it is one."""


class Scrollback:
    """Lines in order of arrival; a snapshot repeats those that it shares with the one before."""

    def __init__(self) -> None:
        self._lines: deque[FeedLine] = deque(maxlen=KEPT)
        self._run: str | None = None
        self._time = 0.0

    def take(self, snapshot: Snapshot) -> int:
        """Add what is new in a snapshot; returns how many lines that were.

        Another run, or a step back in time, starts anew.
        """
        if snapshot.run.run_id != self._run or snapshot.time < self._time:
            self._lines.clear()
        self._run, self._time = snapshot.run.run_id, snapshot.time
        fresh = snapshot.feed
        if self._lines:
            newest = self._lines[-1]
            same = (place for place in range(len(fresh) - 1, -1, -1) if fresh[place] == newest)
            fresh = fresh[next(same, -1) + 1 :]
        self._lines.extend(fresh)
        return len(fresh)

    def lines(
        self, toggles: frozenset[str] = frozenset(), search: str = "", *, facts: bool = False
    ) -> tuple[FeedLine, ...]:
        """Oldest first: of any of the toggled kinds (all without), with every word of the search.

        With neither, `facts` leaves out what comes too fast to be read.
        """
        words = search.lower().split()
        if not toggles and not words:
            return tuple(line for line in self._lines if _is_fact(line)) if facts else tuple(self._lines)
        return tuple(
            line
            for line in self._lines
            if (not toggles or any(_is(line, toggle) for toggle in toggles))
            and all(_has(line, word) for word in words)
        )


def _is_fact(line: FeedLine) -> bool:
    """Warnings and all that happens now and then; of a seed only its end, and no lines for debugging."""
    if line.severity in _ALARMS or line.message.endswith(_ENDS):
        return True
    return line.kind not in _FREQUENT and line.severity not in _DEBUG


def _is(line: FeedLine, toggle: str) -> bool:
    if toggle == "errors":
        return line.severity == "critical" or (line.severity == "warning" and line.kind not in _SEEDS)
    if toggle == "log":
        return line.kind == "log_line"
    if toggle == "seeds":
        return line.kind in _SEEDS
    return line.kind in _POLICY or "update" in line.fields or line.message.startswith("update=")


def _has(line: FeedLine, word: str) -> bool:
    """A word anywhere in the line; `env=9` and its like are compared whole."""
    key, sign, value = word.partition("=")
    lane = (line.gpu_id or "").lower()
    ids = {
        "env": {"" if line.env_id is None else str(line.env_id)},
        "gpu": {lane, lane.removeprefix("gpu")},
        "slot": {(line.slot or "").lower()},
        "seed": {(line.seed_id or "").lower()},
    }
    if sign and key in ids:
        return value in ids[key]
    texts = (line.subsystem, line.message, line.seed_id, line.slot, line.gpu_id, line.severity)
    fields = (f"{name}={text}" for name, text in line.fields.items())
    named = "" if line.env_id is None else f"env {line.env_id}"
    return word in " ".join((*(text or "" for text in texts), *fields, named)).lower()


def line_of(finding: Finding, feed: Sequence[FeedLine]) -> int | None:
    """Which line, counted back from the newest: the last one about its subject until it began.

    Without one the first line after it began; `None` where the feed does not go back so far.
    """
    if not feed or feed[0].time > finding.since:
        return None
    newest = len(feed) - 1
    until = [place for place, line in enumerate(feed) if line.time <= finding.since + 0.5]
    own = (
        place
        for place in reversed(until)
        if feed[place].time >= finding.since - _BEFORE_S and _about(finding, feed[place])
    )
    after = min(until[-1] + 1, newest) if until[-1] < newest else until[-1]
    return newest - next(own, after)


def finding_of(line: FeedLine, findings: Sequence[Finding]) -> Finding | None:
    """The finding about what the line is about that was open at its time or came soon after; worst first."""
    near = (
        one
        for one in findings
        if one.since - _BEFORE_S <= line.time
        and (one.cleared_at is None or line.time <= one.cleared_at)
        and _about(one, line)
    )
    return min(near, key=lambda one: one.subject.scope != "env", default=None)


def _about(finding: Finding, line: FeedLine) -> bool:
    """Whether both are about the same env or lane, or both about the policy or the run."""
    scope, name = finding.subject.scope, finding.subject.id
    if scope == "env":
        return line.env_id is not None and str(line.env_id) == name
    if scope == "gpu":
        return line.gpu_id is not None and line.gpu_id == name
    return (
        scope == "policy" and line.env_id is None and "update" in {line.message.split("=")[0], *line.fields}
    )

"""Between findings and the feed: the line at which a finding began, and the finding that a line belongs to.

Pure. Must not know keys or drawing.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.snapshot import FeedLine, Finding

_BEFORE_S: Final = 10.0
"""What led to a finding was said so long before it at most: a finding has to hold before it is one."""


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

"""What can be searched in a story, as rows of one shape: findings, events, statuses of envs. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from overwatch.analyse.found import Found
from overwatch.analyse.spells import EnvStory, Spell
from overwatch.analyse.story import Story
from overwatch.snapshot import FeedLine

KINDS: Final = ("finding", "event", "env")
_BAD: Final = {"crashed": "critical", "diverging": "warning", "degraded": "warning", "stalled": "warning"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row; what it has no answer to is `None`."""

    run: str
    what: str
    """`finding`, `event` or `env`."""
    at: float
    """Seconds since the run began."""
    time: str
    """The same in UTC, ISO 8601."""
    lasted: float | None = None
    """Seconds; of findings and envs."""
    severity: str
    kind: str
    """A finding's code, an event's kind, an env's status."""
    status: str | None = None
    """`open` (at the end), `cleared` or `acknowledged`; an env's status."""
    env: int | None = None
    gpu: str | None = None
    slot: str | None = None
    seed: str | None = None
    update: int | None = None
    score: float | None = None
    """Of an env, the worst while it was in this status."""
    text: str
    hint: str | None = None
    fields: dict[str, str] = {}

    @property
    def clock(self) -> str:
        """Time of the run: `1:02.5`, `1:00:02.5`."""
        minutes, rest = divmod(max(0.0, self.at), 60)
        hours, minutes = divmod(int(minutes), 60)
        return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"

    @property
    def about(self) -> str:
        """The env, the lane and the slot: `env 6 gpu1`; empty for the run as a whole."""
        env = None if self.env is None else f"env {self.env}"
        return " ".join(word for word in (env, self.gpu, self.slot) if word)

    @property
    def ending(self) -> str:
        """What to add to a finding that never cleared: it was the run, or its recording, that ended."""
        return ", open at the end" if self.status == "open" else ""


def rows(story: Story, what: tuple[str, ...] = KINDS) -> list[Row]:
    """All rows of a run of some kinds, in order of time."""
    found: list[Row] = []
    if "finding" in what:
        found += (_finding(story, one) for one in story.findings)
    if "event" in what:
        found += (_event(story, line) for line in story.facts.lines)
    if "env" in what:
        found += (row for env in story.envs.values() for row in _env(story, env))
    return sorted(found, key=lambda row: row.at)


def moment(story: Story, seconds: float) -> str:
    """A time of the run in UTC."""
    told = datetime.fromtimestamp(story.began + seconds, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def _finding(story: Story, found: Found) -> Row:
    finding = found.finding
    about = finding.subject
    env = int(about.id) if about.scope == "env" and about.id and about.id.isdecimal() else None
    status = "acknowledged" if finding.acknowledged else "open" if found.open else "cleared"
    return Row(
        run=story.run.run_id,
        what="finding",
        at=round(found.since, 3),
        time=moment(story, found.since),
        lasted=round(found.until - found.since, 3),
        severity=found.severity,
        kind=finding.code,
        status=status,
        env=env,
        gpu=about.id if about.scope == "gpu" else _lane(story, env),
        update=found.update,
        text=finding.message,
        hint=finding.hint or None,
        fields={"factors": "; ".join(finding.factors)} if finding.factors else {},
    )


def _event(story: Story, line: FeedLine) -> Row:
    at = line.time - story.began
    return Row(
        run=story.run.run_id,
        what="event",
        at=round(at, 3),
        time=moment(story, at),
        severity=line.severity,
        kind=line.kind,
        env=line.env_id,
        gpu=line.gpu_id or _lane(story, line.env_id),
        slot=line.slot,
        seed=line.seed_id,
        text=line.message,
        fields=line.fields,
    )


def _env(story: Story, env: EnvStory) -> Iterator[Row]:
    for spell in env.statuses:
        yield _spell(story, env, spell)


def _spell(story: Story, env: EnvStory, spell: Spell) -> Row:
    return Row(
        run=story.run.run_id,
        what="env",
        at=round(spell.start, 3),
        time=moment(story, spell.start),
        lasted=round(spell.length, 3),
        severity=_BAD.get(spell.word, "info"),
        kind=spell.word,
        status=spell.word,
        env=env.env_id,
        gpu=_lane(story, env.env_id),
        score=round(spell.score, 3),
        text="; ".join(spell.reasons) or f"{spell.word} for {spell.length:.0f} s",
    )


def _lane(story: Story, env_id: int | None) -> str | None:
    env = None if env_id is None else story.envs.get(env_id)
    return None if env is None or env.last is None else env.last.gpu_id

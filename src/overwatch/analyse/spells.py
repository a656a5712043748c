"""What held over a stretch of time: the bound of a lane, the status of an env. Pure."""

from dataclasses import dataclass, field
from typing import Final

from overwatch.snapshot import Bound, Env

GAP_S: Final = 2.5
"""A word that was not told for longer than this ended when it was last told."""
TICK_S: Final = 1.0
"""What one snapshot stands for."""


@dataclass(slots=True, kw_only=True)
class Spell:
    """One word over a stretch, in seconds since the run began."""

    word: str
    start: float
    end: float
    """When the next word was told, or a tick after it was told last."""
    why: str | None = None
    hint: str | None = None
    confidence: float | None = None
    score: float = 0.0
    """The worst, of an env."""
    reasons: tuple[str, ...] = ()
    """Those of the worst score."""

    @property
    def length(self) -> float:
        """Seconds."""
        return self.end - self.start


@dataclass(slots=True)
class Spells:
    """Stretches by subject, in order."""

    of: dict[str, list[Spell]] = field(default_factory=dict)

    def add(self, subject: str, word: str, now: float, bound: Bound | None = None) -> None:
        """What holds now."""
        told = self.of.setdefault(subject, [])
        going_on = bool(told) and now - told[-1].end <= GAP_S
        if going_on:
            told[-1].end = now
        if not going_on or told[-1].word != word:
            told.append(Spell(word=word, start=now, end=now + TICK_S))
        spell = told[-1]
        spell.end = now + TICK_S
        if bound is not None and (spell.confidence or 0.0) <= (bound.confidence or 0.0):
            spell.why, spell.hint, spell.confidence = bound.why, bound.hint, bound.confidence

    def seconds(self, subject: str) -> dict[str, float]:
        """How long each word held, longest first."""
        sums: dict[str, float] = {}
        for spell in self.of.get(subject, ()):
            sums[spell.word] = sums.get(spell.word, 0.0) + spell.length
        return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


@dataclass(slots=True, kw_only=True)
class EnvStory:
    """One env over the run; what is not among the rows of a snapshot is not seen at that second."""

    env_id: int
    last: Env | None = None
    spells: Spells = field(default_factory=Spells)
    """Its statuses, under one subject."""
    worst: Env | None = None
    """At its highest score."""
    worst_at: float = 0.0

    def take(self, env: Env, now: float) -> None:
        """Its row of one snapshot."""
        self.last = env
        self.spells.add("", env.status, now)
        spell = self.statuses[-1]
        if env.anomaly.score >= spell.score:
            spell.score, spell.reasons = env.anomaly.score, env.anomaly.reasons
        if self.worst is None or env.anomaly.score > self.worst.anomaly.score:
            self.worst, self.worst_at = env, now

    @property
    def statuses(self) -> list[Spell]:
        """What it was, in order."""
        return self.spells.of.get("", [])

    @property
    def bad_s(self) -> float:
        """Seconds in which it was not OK."""
        return sum(
            length for word, length in self.spells.seconds("").items() if word not in ("ok", "unknown")
        )

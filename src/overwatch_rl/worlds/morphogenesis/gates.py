"""The gates between stages: what each asks, and what a slot can know of the answer beforehand.

Owns the table of gates. Rules: a check is a name; a gate is passed when all of its checks are; those that a
slot knows of itself are in the mask, so only what is measured can refuse. There is no G4. Must not know how
answers are found.
"""

from dataclasses import dataclass
from typing import Final

from overwatch.catalog.stages import Stage
from overwatch_rl.worlds.morphogenesis.actions import Op

KNOWN_BEFORE: Final = frozenset({"ids", "stage", "age", "alpha", "hold"})
"""Checks that a slot answers of itself."""

SCORES: Final = ("", "health", "alpha", "contribution")
"""What a gate's score may be; of the first there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The condition of one move onward."""

    name: str
    op: Op
    before: Stage
    after: Stage
    checked: tuple[str, ...]
    """Checks that it always makes."""
    checked_strictly: tuple[str, ...] = ()
    """Checks that a strict one makes besides."""
    score: str = ""
    """Which reading its score is, one of `SCORES`."""

    def checks(self, *, is_strict: bool) -> tuple[str, ...]:
        """Names of what it asks, in order."""
        return self.checked + self.checked_strictly if is_strict else self.checked


GATES: Final = (
    Gate(name="G0", op=Op.GERMINATE, before=Stage.DORMANT, after=Stage.GERMINATED, checked=("ids",)),
    Gate(name="G1", op=Op.ADVANCE, before=Stage.GERMINATED, after=Stage.TRAINING, checked=("stage",)),
    Gate(
        name="G2",
        op=Op.ADVANCE,
        before=Stage.TRAINING,
        after=Stage.BLENDING,
        checked=("age", "gradient", "stable", "health"),
        checked_strictly=("improvement", "ratio"),
        score="health",
    ),
    Gate(
        name="G3",
        op=Op.ADVANCE,
        before=Stage.BLENDING,
        after=Stage.HOLDING,
        checked=("alpha", "hold"),
        checked_strictly=("age",),
        score="alpha",
    ),
    Gate(
        name="G5",
        op=Op.FOSSILISE,
        before=Stage.HOLDING,
        after=Stage.FOSSILISED,
        checked=("age", "counterfactual", "positive"),
        checked_strictly=("contribution",),
        score="contribution",
    ),
)
"""In order; the code of a gate in a column is its place, from 1."""

CHECKS: Final = tuple(dict.fromkeys(check for gate in GATES for check in gate.checks(is_strict=True)))
"""Names of all checks."""

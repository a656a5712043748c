"""The seed lifecycle: ten stages, how each is drawn, and which moves between them are legal.

Owns the only table of stages; TUI, feed, text, docs and the trainer's world all read it.
Must not know anything that draws or trains.
"""

from enum import Enum
from typing import Final


class Stage(Enum):
    """A slot's place in the seed lifecycle; the value is the word used on the wire and in JSON."""

    UNKNOWN = "unknown"
    DORMANT = "dormant"
    GERMINATED = "germinated"
    TRAINING = "training"
    BLENDING = "blending"
    HOLDING = "holding"
    FOSSILISED = "fossilised"
    PRUNED = "pruned"
    EMBARGOED = "embargoed"
    RESETTING = "resetting"

    @property
    def code(self) -> int:
        """Position in the table, used where stages travel or are stored as small integers."""
        return _CODES[self]

    @property
    def glyph(self) -> str:
        """One-cell glyph; the fuller the circle, the further the seed."""
        return _GLYPHS[self][0]

    @property
    def ascii(self) -> str:
        """One-cell glyph for terminals without Unicode."""
        return _GLYPHS[self][1]

    @property
    def label(self) -> str:
        """The word shown in full, upper case."""
        return "FOSSILIZED" if self is Stage.FOSSILISED else self.name

    @property
    def shows_blueprint(self) -> bool:
        """Whether a chip of this stage names the blueprint."""
        return self in _WITH_BLUEPRINT

    @property
    def shows_alpha(self) -> bool:
        """Whether alpha has a meaning in this stage."""
        return self is Stage.BLENDING


_CODES: Final = {stage: code for code, stage in enumerate(Stage)}

BY_CODE: Final[tuple[Stage, ...]] = tuple(Stage)

_GLYPHS: Final[dict[Stage, tuple[str, str]]] = {
    Stage.UNKNOWN: ("?", "?"),
    Stage.DORMANT: ("·", "."),
    Stage.GERMINATED: ("○", "o"),
    Stage.TRAINING: ("◔", "t"),
    Stage.BLENDING: ("◑", "b"),
    Stage.HOLDING: ("◕", "h"),
    Stage.FOSSILISED: ("●", "F"),
    Stage.PRUNED: ("✗", "x"),
    Stage.EMBARGOED: ("⊘", "e"),
    Stage.RESETTING: ("↺", "r"),
}

_WITH_BLUEPRINT: Final = frozenset(
    {Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED, Stage.PRUNED}
)

ALIASES: Final[dict[str, Stage]] = {
    "empty": Stage.DORMANT,
    "probationary": Stage.HOLDING,
    "fossilized": Stage.FOSSILISED,
    "culled": Stage.PRUNED,
}

TRANSITIONS: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.UNKNOWN: frozenset({Stage.DORMANT}),
    Stage.DORMANT: frozenset({Stage.GERMINATED}),
    Stage.GERMINATED: frozenset({Stage.TRAINING, Stage.PRUNED}),
    Stage.TRAINING: frozenset({Stage.BLENDING, Stage.PRUNED}),
    Stage.BLENDING: frozenset({Stage.HOLDING, Stage.PRUNED}),
    Stage.HOLDING: frozenset({Stage.FOSSILISED, Stage.BLENDING, Stage.PRUNED}),
    Stage.FOSSILISED: frozenset(),
    Stage.PRUNED: frozenset({Stage.EMBARGOED}),
    Stage.EMBARGOED: frozenset({Stage.RESETTING}),
    Stage.RESETTING: frozenset({Stage.DORMANT}),
}


def parse_stage(word: str) -> Stage:
    """Read a stage from its word or a known alias in any case; an unknown word is `UNKNOWN`."""
    key = word.strip().lower()
    try:
        return Stage(key)
    except ValueError:
        return ALIASES.get(key, Stage.UNKNOWN)

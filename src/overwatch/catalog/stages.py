"""The seed lifecycle: ten stages, how each is drawn, and which moves between them are legal.

Owns the only table of stages, with all that is true of each; TUI, feed, report, dashboards, docs, the
simulator and the trainer's world read it. A new stage is one member and one row of facets. Must not know
anything that draws or trains.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Life(Enum):
    """What a slot does in a stage: the groups by which slots are counted."""

    UNKNOWN = "unknown"
    RESTING = "resting"
    """It holds nothing."""
    GROWING = "growing"
    """It holds a seed that is tried out."""
    GRAFTED = "grafted"
    """Its seed is part of the network for good."""
    CLEANING = "cleaning"
    """Its seed was thrown away; it leaves the stage by itself."""


class Tone(Enum):
    """How a stage looks wherever there is colour; each view has its own colour for a tone."""

    WARN = "warn"
    MUTED = "muted"
    NEW = "new"
    TRAIN = "train"
    BLEND = "blend"
    HOLD = "hold"
    DONE = "done"
    FAIL = "fail"


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
    def facets(self) -> "Facets":
        """What is true of it."""
        return _FACETS[self]

    @property
    def code(self) -> int:
        """Position in the table, used where stages travel or are stored as small integers."""
        return _CODES[self]

    @property
    def glyph(self) -> str:
        """One-cell glyph; the fuller the circle, the further the seed."""
        return self.facets.glyph

    @property
    def ascii(self) -> str:
        """One-cell glyph for terminals without Unicode."""
        return self.facets.ascii

    @property
    def label(self) -> str:
        """The word shown in full, upper case."""
        return "FOSSILIZED" if self is Stage.FOSSILISED else self.name

    @property
    def shows_blueprint(self) -> bool:
        """Whether a chip of this stage names the blueprint."""
        return self.facets.names_blueprint

    @property
    def shows_alpha(self) -> bool:
        """Whether alpha has a meaning in this stage."""
        return self is Stage.BLENDING


@dataclass(frozen=True, slots=True)
class Facets:
    """What is true of one stage."""

    glyph: str
    """One cell; the fuller the circle, the further the seed."""
    ascii: str
    """One cell for terminals without Unicode."""
    life: Life
    tone: Tone
    onward: tuple[Stage, ...]
    """The stages that may follow."""
    names_blueprint: bool = True
    """Whether a chip of this stage names the blueprint."""
    pays_rent: bool = False


_CODES: Final = {stage: code for code, stage in enumerate(Stage)}

BY_CODE: Final[tuple[Stage, ...]] = tuple(Stage)

_FACETS: Final[dict[Stage, Facets]] = {
    Stage.UNKNOWN: Facets("?", "?", Life.UNKNOWN, Tone.WARN, (Stage.DORMANT,), names_blueprint=False),
    Stage.DORMANT: Facets("·", ".", Life.RESTING, Tone.MUTED, (Stage.GERMINATED,), names_blueprint=False),
    Stage.GERMINATED: Facets("○", "o", Life.GROWING, Tone.NEW, (Stage.TRAINING, Stage.PRUNED)),
    Stage.TRAINING: Facets(
        "◔", "t", Life.GROWING, Tone.TRAIN, (Stage.BLENDING, Stage.PRUNED), pays_rent=True
    ),
    Stage.BLENDING: Facets("◑", "b", Life.GROWING, Tone.BLEND, (Stage.HOLDING, Stage.PRUNED), pays_rent=True),
    Stage.HOLDING: Facets(
        "◕", "h", Life.GROWING, Tone.HOLD, (Stage.FOSSILISED, Stage.BLENDING, Stage.PRUNED), pays_rent=True
    ),
    Stage.FOSSILISED: Facets("●", "F", Life.GRAFTED, Tone.DONE, (), pays_rent=True),
    Stage.PRUNED: Facets("✗", "x", Life.CLEANING, Tone.FAIL, (Stage.EMBARGOED,)),
    Stage.EMBARGOED: Facets("⊘", "e", Life.CLEANING, Tone.FAIL, (Stage.RESETTING,), names_blueprint=False),
    Stage.RESETTING: Facets("↺", "r", Life.CLEANING, Tone.MUTED, (Stage.DORMANT,), names_blueprint=False),
}

TRANSITIONS: Final[dict[Stage, frozenset[Stage]]] = {stage: frozenset(stage.facets.onward) for stage in Stage}
"""Legal moves. A stage without facets is an error here, when the module is read."""

ALIASES: Final[dict[str, Stage]] = {
    "empty": Stage.DORMANT,
    "probationary": Stage.HOLDING,
    "fossilized": Stage.FOSSILISED,
    "culled": Stage.PRUNED,
}


def of_life(*lives: Life) -> tuple[Stage, ...]:
    """The stages in which a slot does one of these, in the order of the table."""
    return tuple(stage for stage in Stage if stage.facets.life in lives)


def parse_stage(word: str) -> Stage:
    """Read a stage from its word or a known alias in any case; an unknown word is `UNKNOWN`."""
    key = word.strip().lower()
    try:
        return Stage(key)
    except ValueError:
        return ALIASES.get(key, Stage.UNKNOWN)

"""What a policy may do: six operations and seven arguments, as eight masked heads.

Owns the words and numbers of every choice, and which arguments an operation depends on. Must not know stages,
networks or rewards.

Shape letters: N envs, K slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from torch import Tensor

from overwatch_rl.types import Factored, Head


class Op(IntEnum):
    """What is done in one step of one env."""

    WAIT = 0
    GERMINATE = 1
    SET_ALPHA_TARGET = 2
    PRUNE = 3
    FOSSILISE = 4
    ADVANCE = 5


class Style(IntEnum):
    """How a branch is combined with its host, and along which curve it is blended in first."""

    LINEAR_ADD = 0
    LINEAR_MULTIPLY = 1
    SIGMOID_ADD = 2
    GATED = 3


class Curve(IntEnum):
    """Along which curve alpha moves."""

    LINEAR = 0
    COSINE = 1
    SIGMOID_GENTLE = 2
    SIGMOID = 3
    SIGMOID_SHARP = 4


TEMPOS: Final = (("fast", 3), ("standard", 5), ("slow", 8))
"""Steps of the first blending."""
ALPHA_TARGETS: Final = (0.5, 0.7, 1.0)
ALPHA_SPEEDS: Final = (("instant", 0), ("fast", 3), ("medium", 5), ("slow", 8))
"""Steps in which alpha moves to a new target, or a pruned seed fades out."""
NO_OP: Final = "noop"
"""Id of the blueprint that does nothing: it exists for measurements and is never legal."""

USES: Final[dict[Op, tuple[str, ...]]] = {
    Op.WAIT: ("op",),
    Op.GERMINATE: ("op", "slot", "blueprint", "style", "tempo", "alpha_target"),
    Op.SET_ALPHA_TARGET: ("op", "slot", "style", "alpha_target", "alpha_speed", "alpha_curve"),
    Op.PRUNE: ("op", "slot", "alpha_speed", "alpha_curve"),
    Op.FOSSILISE: ("op", "slot"),
    Op.ADVANCE: ("op", "slot"),
}
"""The heads that an operation causally depends on."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action an env: N int64 each, places in the tables of this module; 0 where unused."""

    op: Tensor
    slot: Tensor
    blueprint: Tensor
    style: Tensor
    tempo: Tensor
    alpha_target: Tensor
    alpha_speed: Tensor
    alpha_curve: Tensor


HEADS: Final = tuple(Action.__slots__)
"""Names of the heads in their order."""


def action_spec(num_slots: int, blueprints: Sequence[str]) -> Factored:
    """Eight heads, for K slots, three to a row, and blueprints of these ids."""
    labels = {
        "op": _words(Op),
        "slot": tuple(f"r{index // 3}c{index % 3}" for index in range(num_slots)),
        "blueprint": tuple(blueprints),
        "style": _words(Style),
        "tempo": tuple(word for word, _ in TEMPOS),
        "alpha_target": tuple(map(str, ALPHA_TARGETS)),
        "alpha_speed": tuple(word for word, _ in ALPHA_SPEEDS),
        "alpha_curve": _words(Curve),
    }
    return Factored(
        heads=tuple(Head(name=name, labels=labels[name]) for name in HEADS),
        uses=tuple(tuple(name in USES[op] for name in HEADS) for op in Op),
    )


def _words(kind: type[IntEnum]) -> tuple[str, ...]:
    return tuple(member.name.lower() for member in kind)

"""What a run can be commanded to do, within which bounds, and what a learner answers.

Rules: a command has an id that its sender chooses, so that a repeated request is the same command; the
learner acknowledges with what was done. Bounds are stated here once, and checked where a command is accepted
and again where it is obeyed. Pure. Must not know HTTP, storage or how a learner obeys.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from overwatch_rl.web.faults import Fault, InvalidError

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\x00]*\Z")]
"""What a person wrote."""
Identifier: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
"""Of a run or a command: letters, digits and `._:-`, as in a path."""


class _Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One kind of command."""


class Tune(_Command, frozen=True, kw_only=True, tag="tune"):
    """Set hyperparameters of the running algorithm; a name of `TUNABLES` to its new value."""

    values: Annotated[dict[str, float], msgspec.Meta(min_length=1, max_length=16)]


class Pause(_Command, frozen=True, kw_only=True, tag="pause"):
    """Finish the update in progress, sample no more, and wait."""

    reason: Text | None = None


class Resume(_Command, frozen=True, kw_only=True, tag="resume"):
    """Go on after a pause."""

    reason: Text | None = None


class Terminate(_Command, frozen=True, kw_only=True, tag="terminate"):
    """Finish the update in progress, write a last checkpoint, and end."""

    reason: Text | None = None


Command: TypeAlias = Tune | Pause | Resume | Terminate
Kind: TypeAlias = Literal["tune", "pause", "resume", "terminate"]


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it is delivered to a learner."""

    id: Identifier
    command: Command
    redelivered: bool = False
    """Whether it was delivered before and not acknowledged: it may have been obeyed already."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A hyperparameter before and after."""

    before: float
    after: float


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command: the learner's acknowledgement."""

    outcome: Literal["done", "refused", "failed"]
    """`refused`: it asks for what this learner cannot do; `failed`: it tried."""
    detail: Text = ""
    """What was done, or why not, e.g. the version of the last checkpoint."""
    changes: dict[str, Change] = {}
    """Of a tune."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which values a hyperparameter may take in a running algorithm."""

    least: float
    most: float
    source: str
    is_open: bool = False
    """Whether `least` itself is excluded."""

    def __str__(self) -> str:
        return f"{'(' if self.is_open else '['}{self.least:g}, {self.most:g}]"

    def includes(self, value: float) -> bool:
        """Whether a value is one of them; NaN never is."""
        return self.least <= value <= self.most and not (self.is_open and value == self.least)


_SEED: Final = "tune bounds of Cartridge's control plane"
_ZOO: Final = "search ranges of PPO in RL Baselines3 Zoo"

TUNABLES: Final[Mapping[str, Bounds]] = {
    "learning_rate": Bounds(least=0.0, most=1.0, is_open=True, source=_SEED),
    "entropy_coef": Bounds(least=0.0, most=0.1, source=_SEED),
    "clip": Bounds(least=0.05, most=0.3, source=_SEED),
    "value_coef": Bounds(least=0.0, most=1.0, source=_ZOO),
    "max_grad_norm": Bounds(least=0.0, most=5.0, is_open=True, source=_ZOO),
}
"""One row a hyperparameter that a tune may set."""


def check(command: Command) -> None:
    """Raise `InvalidError` naming the value and its bounds where a command is not within them."""
    if not isinstance(command, Tune):
        return
    for name, value in command.values.items():
        bounds = TUNABLES.get(name)
        if bounds is None:
            raise InvalidError(Fault(f"values.{name[:60]}", f"cannot be tuned; use {', '.join(TUNABLES)}"))
        if not math.isfinite(value) or not bounds.includes(value):
            raise InvalidError(Fault(f"values.{name}", f"is {value:g}; use a value in {bounds}"))

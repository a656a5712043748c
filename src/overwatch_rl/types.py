"""The shapes that flow through the flight: specs, steps, rollouts, statistics, reports.

Owns every type that two of the flight's modules share, so that worlds, algorithms, storage and telemetry
need not know one another. Rules: tensors stay on the device that made them; nothing here computes on them.

Shape letters, on every field that holds a tensor:

    T  steps of one rollout        S  the shape of one observation, one or more dimensions
    N  environments                L  outputs of the policy that describe one action
    P  operations                  C  choices of one argument head
    B  rows of a batch (T x N)     H  action heads; 1 where actions are continuous
    K  slots of an environment     D  dimensions of a continuous action
    M  memory of a recurrent policy
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from overwatch.events import Event, MetricInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One categorical choice of an action."""

    name: str
    labels: tuple[str, ...]
    """A word per choice, as telemetry shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factored:
    """Factored discrete actions: the first head chooses the operation, the others its arguments.

    An argument head has one row of choices per operation, so its mask and its logits may depend on the
    operation. Flat layout: the operations, then for each argument head operations x choices. Actions are
    N H int64.
    """

    heads: tuple[Head, ...]
    uses: tuple[tuple[bool, ...], ...]
    """For each operation, which heads it causally depends on; the first is always used."""

    def __post_init__(self) -> None:
        if not self.heads or not all(head.labels for head in self.heads):
            raise ValueError("an action needs at least one head, and every head at least one choice")
        if len(self.uses) != self.num_ops or any(len(row) != len(self.heads) for row in self.uses):
            raise ValueError(f"`uses` needs {self.num_ops} rows of {len(self.heads)} entries")
        if not all(row[0] for row in self.uses):
            raise ValueError("every operation uses the first head: it is the operation")

    @property
    def num_ops(self) -> int:
        """Number of operations."""
        return len(self.heads[0].labels)

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.heads)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Width of each head's block in the flat layout."""
        ops = self.num_ops
        return (ops, *(ops * len(head.labels) for head in self.heads[1:]))

    @property
    def num_outputs(self) -> int:
        """L: a logit for each choice."""
        return sum(self.sizes)

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """The heads of a flat tensor B L: operations B P, then for each argument B P C."""
        if self.num_heads == 1:
            return [flat]
        blocks = torch.split(flat, list(self.sizes), dim=1)
        choices = [len(head.labels) for head in self.heads[1:]]
        return [
            blocks[0],
            *(
                block.reshape(-1, self.num_ops, width)
                for block, width in zip(blocks[1:], choices, strict=True)
            ),
        ]


def discrete(labels: tuple[str, ...], name: str = "op") -> Factored:
    """One categorical choice: a factored action with a single head."""
    return Factored(heads=(Head(name=name, labels=labels),), uses=((True,),) * len(labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Continuous actions, N D float32; a world clamps them to its bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.low or len(self.low) != len(self.high):
            raise ValueError(f"a box needs as many lower as upper bounds, not {self.low} and {self.high}")

    @property
    def num_heads(self) -> int:
        """H: all dimensions are one choice."""
        return 1

    @property
    def num_outputs(self) -> int:
        """L: a mean for each dimension; the deviations are parameters of their own."""
        return len(self.low)


ActionSpec: TypeAlias = Factored | Box


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLayout:
    """Where the features of slots are in a flat observation: `shared` features, then `width` of each slot."""

    shared: int
    """Features of the whole environment."""
    count: int
    """K."""
    width: int
    """Features of one slot, in the same order for each."""
    head: str = "slot"
    """The head of the action that chooses a slot."""

    def __post_init__(self) -> None:
        for name, least in (("shared", 0), ("count", 1), ("width", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} of the slots is {getattr(self, name)}; use {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationSpec:
    """What an observation of one environment is."""

    shape: tuple[int, ...]
    """S: one dimension is a vector, two a grid of codes, three channels x rows x columns."""
    dtype: torch.dtype = torch.float32
    codes: tuple[tuple[float, ...], ...] = ()
    """For a grid of codes: the channels of each code, which the network's first operation looks up."""
    glyphs: str = ""
    """For a grid of codes: a character for each, as a screen shows it."""
    slots: SlotLayout | None = None
    """For a vector with features of slots: where they are."""

    def __post_init__(self) -> None:
        slots = self.slots
        if slots is not None and self.shape != (slots.shared + slots.count * slots.width,):
            raise ValueError(
                f"an observation of {slots.shared} features and {slots.count} slots of {slots.width} has "
                f"another shape than {self.shape}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFacts:
    """The words of a world that grows seeds in slots; codes in its columns count into these."""

    slots: tuple[str, ...]
    """Names in order."""
    embargo: int
    """Steps for which a slot stays embargoed after a prune."""
    blueprints: tuple[tuple[str, str], ...]
    """Pairs of blueprint id and two-letter code, in order of their number."""
    reasons: tuple[str, ...]
    """Why a stage was left; code 0 stands for no change."""
    gates: tuple[tuple[str, tuple[str, ...]], ...]
    """Name of each gate and of its checks; code 0 stands for no gate."""
    styles: tuple[str, ...] = ()
    """How a seed is blended into its host."""
    curves: tuple[str, ...] = ()
    """How its alpha rises or falls."""
    tempos: tuple[str, ...] = ()
    """How fast it blends."""
    sizes: tuple[int, ...] = ()
    """Parameters of each blueprint."""
    panics: tuple[str, ...] = ()
    """Why the host of an env is set back; code 0 stands for none."""


Summary: TypeAlias = Callable[[Mapping[str, Tensor], Tensor], dict[str, Tensor]]
"""From the columns of a rollout (each T N ...) and where episodes ended (T N bool) to scalars on the device,
by short catalogue name; `UNDEFINED` where a number is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """What a world is, before its first step."""

    task: str
    metric: "MetricInfo"
    """The task's own measure, in the column `metric`."""
    reward_mode: str
    observation: ObservationSpec
    action: ActionSpec
    horizon: int | None = None
    """Least steps between two truncations of one env; `None` in a world that never truncates."""
    resumable: bool = True
    """Whether `state_dict` holds all of it."""
    seeds: SeedFacts | None = None
    """`None` in a world without slots."""
    summary: Summary | None = None
    """Rows of its own, an update each."""
    summarised: tuple[str, ...] = ()
    """Names of what `summary` gives, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees and may do."""

    features: Tensor  # N S, in the dtype of the spec
    mask: Tensor | None = None  # N L bool, true where a choice is legal; None where all always are
    memory: Tensor | None = None  # N M, of a recurrent policy before this step; None at a beginning, and in
    # worlds, which know nothing of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of all envs returned.

    Envs whose episode ended have been reset: `observation` is of the new episode, everything else of the
    step that was taken.
    """

    observation: Observation
    reward: Tensor  # N float32
    terminated: Tensor  # N bool, the task itself ended: nothing to bootstrap
    truncated: Tensor  # N bool, cut short from outside: bootstrap with the final observation
    final: Tensor | None = None  # N S, before the reset; None in worlds that never truncate
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """What telemetry and `WorldSpec.summary` see of the step, N or N K each; the same names at every step."""
    facts: "tuple[Event, ...]" = ()
    """What happened once, on the host; a batched world has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Actions, what they cost and left open."""

    actions: Tensor  # N H int64, 0 where unused; N D float32 where continuous
    log_probs: Tensor  # N H, 0 where unused
    values: Tensor  # N, in the scale of returns
    choices: Tensor | None = None  # N P, the probability of each operation; None where there are none
    memory: Tensor | None = None  # N M, of a recurrent policy after this step


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the collecting policy saw, did and got; raw values and rewards."""

    features: Tensor  # T N S
    mask: Tensor | None  # T N L bool
    actions: Tensor  # T N H int64 or T N D float32
    log_probs: Tensor  # T N H, 0 for heads that the operation does not use
    values: Tensor  # T N
    rewards: Tensor  # T N
    terminated: Tensor  # T N bool
    truncated: Tensor  # T N bool
    final: Tensor | None  # F N S, final observations of truncated episodes; None in worlds without
    final_at: Tensor | None  # F N int64, the step of each; T where a place is empty
    last: Observation  # after the last step
    columns: Mapping[str, Tensor]  # T N or T N K each
    age: Tensor | None = None  # T N int64, versions of the policy behind; None where all steps are its own
    memory: Tensor | None = None  # N M, of a recurrent policy before the first step; None is all zero


Stats: TypeAlias = dict[str, Tensor]
"""Scalars of one update on the training device, by short catalogue name; `UNDEFINED` where a number is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """One rollout as telemetry gets it: dense columns on the device, never compacted there."""

    first_step: int
    """Steps of the vector env since the run began, of the first row, from 1."""
    at_first: float
    """When the first step ended, seconds since the epoch."""
    at_last: float
    """When the last one did."""
    actions: Tensor  # T N H int64, or T N D float32
    rewards: Tensor  # T N
    terminated: Tensor  # T N bool
    truncated: Tensor  # T N bool
    episode_return: Tensor  # T N float64, the sum of rewards since the episode began
    episode_length: Tensor  # T N int32
    columns: Mapping[str, Tensor]  # T N or T N K each, the world's own
    seen: Tensor  # S, what env 0 sees after the last step


class Reporter(Protocol):
    """Where a run's numbers go; reporters are composed, the trainer knows one.

    Tensors that a call takes are not changed afterwards before the next call of the same kind returns; a
    reporter that keeps them longer copies them.
    """

    def phase(self, name: str) -> AbstractContextManager[object]:
        """Measure a phase of the training loop."""
        ...

    def beat(self, step: int, duration_s: float) -> None:
        """Report that a step was taken; cheap enough for every step."""
        ...

    def rollout(self, rolled: Rolled) -> None:
        """Report the steps of one rollout."""
        ...

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Report one update, from 1, by short catalogue name; a number that is undefined is absent."""
        ...

    def fact(self, event: "Event") -> None:
        """Report what happened once: a checkpoint, an early stop, an ended curriculum."""
        ...

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """End the report; the outcome is `completed`, `failed` or `interrupted`. Safe to call twice."""
        ...

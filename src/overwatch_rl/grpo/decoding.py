"""From groups as they came over the wire to what an update learns from.

Rules: a log-probability that is absent is an error that names its path, never 0; a group with an error is
left out, and the others are learned from. Must not know HTTP or how they are learned from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from overwatch_rl.algorithms.grpo import Answers
from overwatch_rl.grpo.base import padded
from overwatch_rl.grpo.sampler import IGNORED

_ROUNDING = 1e-4
"""By how much a log-probability may be above 0."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to one prompt; keys that are not needed here pass."""

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    inference_logprobs: list[list[float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What could be read of a batch."""

    answers: Answers | None
    """`None` where no group could be."""
    refused: tuple[str, ...]
    """A line for each group that was left out, beginning with the path."""


def decode_batch(
    groups: Sequence[Mapping[str, Any]], versions: Sequence[int | None], *, vocabulary: int, end: int
) -> Decoded:
    """The groups of one batch with the number of the weights that made each."""
    good: list[tuple[Group, int | None]] = []
    refused = []
    for place, (raw, version) in enumerate(zip(groups, versions, strict=True)):
        try:
            group = msgspec.convert(raw, Group)
            _check(group, vocabulary)
        except (msgspec.ValidationError, _FaultError) as error:
            refused.append(f"batch[{place}]{'.' if isinstance(error, _FaultError) else ': '}{error}")
        else:
            good.append((group, version))
    return Decoded(answers=_answers(good, end) if good else None, refused=tuple(refused))


class _FaultError(ValueError):
    """Begins with the path below the group."""


def _check(group: Group, vocabulary: int) -> None:
    sizes = [len(row) for row in group.tokens]
    if len(sizes) < 2:
        raise _FaultError(
            f"tokens: has {len(sizes)} sequences; send 2 or more, they are compared with one another"
        )
    if len(group.scores) != len(sizes):
        raise _FaultError(
            f"scores: has {len(group.scores)} numbers for {len(sizes)} sequences; send one for each"
        )
    chances = group.inference_logprobs
    if chances is None:
        raise _FaultError(
            "inference_logprobs: is absent; send the log-probabilities by which letters were drawn"
        )
    for name, rows in (("masks", group.masks), ("inference_logprobs", chances)):
        if [len(row) for row in rows] != sizes:
            raise _FaultError(f"{name}: has rows of other lengths than tokens; send a number for each token")
    for row, (tokens, masks) in enumerate(zip(group.tokens, group.masks, strict=True)):
        if masks[:1] != [IGNORED]:
            raise _FaultError(f"masks[{row}][0]: nothing comes before the first token; send {IGNORED}")
        for at, (token, mask) in enumerate(zip(tokens, masks, strict=True)):
            if not 0 < token < vocabulary:
                raise _FaultError(f"tokens[{row}][{at}]: {token} is no letter; use 1 to {vocabulary - 1}")
            if mask != IGNORED and not (math.isfinite(chances[row][at]) and chances[row][at] <= _ROUNDING):
                raise _FaultError(
                    f"inference_logprobs[{row}][{at}]: {chances[row][at]} is no log-probability; "
                    "send that by which the letter was drawn"
                )


def _answers(good: list[tuple[Group, int | None]], end: int) -> Answers:
    tokens = [row for group, _ in good for row in group.tokens]
    masks = [row for group, _ in good for row in group.masks]
    chances = [row for group, _ in good for row in group.inference_logprobs or ()]
    learned = padded([[mask != IGNORED for mask in row[1:]] for row in masks]).bool()
    behaviour = padded([[min(chance, 0.0) for chance in row[1:]] for row in chances])
    return Answers(
        tokens=padded(tokens),
        learned=learned,
        behaviour=torch.where(learned, behaviour, 0.0),
        scores=torch.tensor([score for group, _ in good for score in group.scores]),
        groups=torch.tensor([place for place, (group, _) in enumerate(good) for _ in group.tokens]),
        versions=tuple(version for group, version in good for _ in group.tokens),
        cut=torch.tensor([row[-1] != end for row in tokens]),
    )

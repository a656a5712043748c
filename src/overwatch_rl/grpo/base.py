"""The base model: a short supervised start, after which the policy answers in one of four habits.

Its examples answer a prompt with the digits in order, in falling order, as they stand, or turned round, each
as often: it can do what is wanted and does it in about a fifth of its answers. Only the first habit is right,
and which one pays is what reinforcement has to find. No example is of a prompt that is held out. Must not
know groups, queues or processes.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.algorithms.common import Adam
from overwatch_rl.algorithms.grpo import distribution
from overwatch_rl.grpo.model import ModelConfig, Transformer, answer
from overwatch_rl.grpo.task import END, END_CODE, VOCABULARY, TaskConfig, decode, draw, encode, reward

EVALUATION_SEED: Final = 1_000_003
"""Far from the seeds of training: prompts that every run is judged by."""
HABITS: Final[tuple[Callable[[str], str], ...]] = (
    lambda digits: "".join(sorted(digits)),
    lambda digits: "".join(sorted(digits, reverse=True)),
    lambda digits: digits,
    lambda digits: digits[::-1],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseConfig:
    """How the base model is made."""

    steps: int = 400
    """Supervised steps."""
    examples: int = 128
    """Prompts of one step."""
    learning_rate: float = 3e-3
    """The greatest, of a short rise and a long fall."""
    width: int = 64
    layers: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "examples", "width", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"base.{name} is {getattr(self, name)}; use 1 or more")


def padded(rows: Sequence[Sequence[float]]) -> Tensor:
    """Rows of numbers, filled up with 0 at their ends."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *(0,) * (longest - len(row))] for row in rows])


def make_base(config: BaseConfig, task: TaskConfig, seed: int) -> Transformer:
    """Make and train one; same seed, same model."""
    shape = ModelConfig(
        vocabulary=VOCABULARY, positions=task.positions, width=config.width, layers=config.layers
    )
    model = Transformer(shape, torch.Generator().manual_seed(seed))
    optimizer = Adam(model.parameters(), fused=True)
    source = random.Random(seed)  # noqa: S311 examples, no secrets
    for step in range(config.steps):
        rate = config.learning_rate * min(1.0, (step + 1) / 20) * (1 - step / config.steps)
        optimizer.param_groups[0]["lr"] = rate
        prompts = draw(config.examples, task, source)
        answers = [source.choice(HABITS)(prompt[:-1]) + END for prompt in prompts]
        tokens = padded([encode(prompt + habit) for prompt, habit in zip(prompts, answers, strict=True)])
        wanted = tokens[:, 1:].clone()
        for row, prompt in enumerate(prompts):
            wanted[row, : len(prompt) - 1] = 0
        chances = distribution(model, tokens)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(functional.nll_loss(chances.flatten(0, 1), wanted.flatten(), ignore_index=0))
        optimizer.step()
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a model earns on prompts that are held out, answers drawn as in training."""

    mean: float
    standard_error: float


def judge(model: Transformer, task: TaskConfig, *, prompts: int = 512, seed: int = 0) -> Judged:
    """Answer held-out prompts, the same in every run; `seed` is of the draws."""
    requested = draw(prompts, task, random.Random(EVALUATION_SEED), held_out=True)  # noqa: S311
    drawn = answer(
        model,
        [encode(prompt) for prompt in requested],
        most=task.answer_tokens,
        end=END_CODE,
        generator=torch.Generator().manual_seed(seed),
    )
    earned = torch.tensor(
        [
            reward(prompt, decode(row).rstrip("_"))
            for prompt, row in zip(requested, drawn.tokens.tolist(), strict=True)
        ]
    )
    return Judged(mean=float(earned.mean()), standard_error=float(earned.std() / prompts**0.5))

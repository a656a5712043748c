"""Makes groups of answers, as they go over the wire of the rollouts server.

Rules: all answers of a group are to one prompt, by one version of the weights, and each letter that was drawn
goes with the log-probability by which it was. Letters of the prompt are masked by -100, and have 1.0, which
no log-probability is. Must not know the server or the trainer.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec
import torch

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.model import Transformer, answer
from overwatch_rl.grpo.task import END_CODE, TaskConfig, decode, draw, encode, reward
from overwatch_rl.grpo.weights import Weights

IGNORED: Final = -100
NOT_DRAWN: Final = 1.0


class Sampler:
    """A model, its version, and draws of its own."""

    def __init__(self, weights: Weights, *, group_size: int, seed: int) -> None:
        if group_size < 2:
            raise ValueError(f"group_size is {group_size}; use 2 or more, answers are compared in a group")
        self.group_size = group_size
        self.version: Version = weights.version
        """What groups are stamped with."""
        self._task: TaskConfig = weights.task
        self._model: Transformer = weights.made()
        self._prompts = random.Random(seed)  # noqa: S311 prompts, no secrets
        self._draws = torch.Generator().manual_seed(seed)

    def take(self, weights: Weights) -> None:
        """Draw with newer weights from now on."""
        self._model.load_state_dict(weights.tensors)
        self.version = weights.version

    def groups(
        self, count: int, part: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> list[dict[str, Any]]:
        """So many groups, drawn together; scoring them is measured as a `part`."""
        requested = draw(count, self._task, self._prompts)
        prompts = [prompt for prompt in requested for _ in range(self.group_size)]
        drawn = answer(
            self._model,
            [encode(prompt) for prompt in prompts],
            most=self._task.answer_tokens,
            end=END_CODE,
            generator=self._draws,
        )
        rows = zip(
            prompts, drawn.tokens.tolist(), drawn.log_probs.tolist(), drawn.lengths.tolist(), strict=True
        )
        with part("rl.reward"):
            made = [
                _sequence(prompt, tokens[:size], chances[:size]) for prompt, tokens, chances, size in rows
            ]
        return [
            self._group(made[first : first + self.group_size])
            for first in range(0, len(made), self.group_size)
        ]

    def _group(self, made: list[dict[str, Any]]) -> dict[str, Any]:
        group: dict[str, Any] = {name: [one[name] for one in made] for name in made[0]}
        return group | {"version": msgspec.structs.asdict(self.version)}


def _sequence(prompt: str, tokens: list[int], chances: list[float]) -> dict[str, Any]:
    requested = encode(prompt)
    return {
        "tokens": requested + tokens,
        "masks": [IGNORED] * len(requested) + tokens,
        "inference_logprobs": [NOT_DRAWN] * len(requested) + chances,
        "scores": reward(prompt, decode(tokens)),
    }

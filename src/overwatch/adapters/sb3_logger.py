"""What Stable-Baselines3's logger has, as updates; `overwatch.adapters.sb3` adds it to the logger's outputs.

Rules: every number is sent, one that no row has as a custom number; an update is sent whole, right after it.
SB3 dumps `train/*` a rollout late and the last never: they are read where `train()` left them. Entropy is
`train/entropy_loss`, also as a share of its maximum where the action space has one.
"""

import time
from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.numbers import numbers
from overwatch.adapters.spaces import most_entropy
from overwatch.catalog import Library

_OF_LOOP: Final = "time/fps"
"""What only the loop's own dumps have: an evaluation, or a program, may dump in between."""


class Numbers(KVWriter, Bordered):
    """One of the logger's outputs: gathers the numbers of an update and sends them together."""

    def __init__(self, model: BaseAlgorithm, run: sdk.Run) -> None:
        self._run = run
        is_masked = "Maskable" in type(model.policy).__name__
        self._most_entropy = None if is_masked else most_entropy(model.action_space)
        self._at_dump = not isinstance(model, OnPolicyAlgorithm)
        self._waiting: dict[str, float] = {}
        self._has_update = False
        self._trained = model.logger.name_to_value.get("train/n_updates")
        self._reported_at = time.perf_counter()

    @kept_out
    def write(self, key_values: dict[str, Any], *_: object) -> None:
        """SB3 dumps its logger: on-policy between a rollout and its training, else after both."""
        self._gather(key_values)
        if self._at_dump and _OF_LOOP in key_values:
            self._has_update = True
            self.report()

    def take(self, logged: dict[str, Any]) -> None:
        """Take `train/*` before it is dumped."""
        self._gather({key: value for key, value in logged.items() if key.startswith("train/")})

    def _gather(self, logged: dict[str, Any]) -> None:
        """Take all numbers; those of `train/*` where they are of a training not yet taken."""
        trained = logged.get("train/n_updates")
        is_old = trained is not None and trained == self._trained
        self._has_update |= trained is not None and not is_old
        self._trained = trained or self._trained
        new = {key: value for key, value in logged.items() if not (is_old and key.startswith("train/"))}
        found = numbers(new, Library.SB3)
        if "entropy_nats" in found and self._most_entropy is not None:
            found["entropy"] = found["entropy_nats"] / self._most_entropy
        self._waiting |= found

    def report(self) -> None:
        """Send what was gathered as one update; without a training since the last one, as more of that."""
        before, self._reported_at = self._reported_at, time.perf_counter()
        if not self._waiting:
            return
        if self._has_update and not self._at_dump:
            self._waiting["update_time"] = self._reported_at - before
        number = (self._run.last_update or 0) + self._has_update
        self._run.update(update=number or None, **self._waiting)
        self._waiting, self._has_update = {}, False

    def close(self) -> None:
        """Nothing to close: the run outlives the logger."""

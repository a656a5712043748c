"""The policy of a simulated run: its numbers at each update, healthy unless told otherwise.

Pure but for its dice. Must not know envs or machines.
"""

import math
from typing import Final

from overwatch.catalog import Scope, find
from overwatch.events import EarlyStopped, Event, Measured, NonFiniteSeen, PhaseEnded, scalars
from overwatch.simulate.dice import Dice
from overwatch.simulate.faults import Conditions
from overwatch.simulate.settings import Settings

EARLY_STOP_KL: Final = 0.045
UPDATE_S: Final = 0.2
_POISONED: Final = ("policy_loss", "grad_norm")


class Policy:
    """One update a second."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dice = Dice(settings.seed, 3)

    def advance(self, update: int, at: int, now: Conditions, mean_return: float | None) -> list[Event]:
        """The events of one update."""
        values = self._values(update, now)
        if mean_return is not None:
            values["return"] = mean_return
        events: list[Event] = [*self._phases(update, at, now)]
        if values["kl_divergence"] > EARLY_STOP_KL:
            events.append(
                EarlyStopped(
                    at=at, update=update, epoch=1, kl_divergence=values["kl_divergence"], target=0.03,
                    minibatches_skipped=24,
                )
            )  # fmt: skip
        if now.poisoned:
            values.update(dict.fromkeys(_POISONED, math.nan))
            events += [
                NonFiniteSeen(at=at, scope=Scope.POLICY, metric=_full(name), kind="nan") for name in _POISONED
            ]
        named = scalars({_full(name): value for name, value in values.items()})
        events.append(Measured(at=at, scope=Scope.POLICY, values=named, index=update))
        return events

    def _values(self, update: int, now: Conditions) -> dict[str, float]:
        """Healthy numbers, pulled away by a collapse."""
        done = update / (update + 60)
        gone = now.collapse
        noise = iter(self._dice.noise(8).tolist())
        kl = 0.007 * (1 + 0.12 * next(noise)) * (1 + 10 * gone)
        return {
            "kl_divergence": kl,
            "kl_joint": kl * 1.8,
            "kl_max": kl * (2.1 + 0.1 * next(noise)),
            "first_ratio_error": 1e-6 * (1 + 0.1 * next(noise)),
            "entropy": (0.85 - 0.25 * done + 0.006 * next(noise)) * (1 - 0.95 * gone),
            "clip_fraction": min(0.98, (0.11 + 0.008 * next(noise)) * (1 + 5 * gone)),
            "explained_variance": 0.35 + 0.5 * done + 0.01 * next(noise) - 1.6 * gone,
            "grad_norm": 1.4 * (1 + 0.06 * next(noise)) * (1 + 14 * gone),
            "learning_rate": 3e-4 * (1 - 0.9 * min(1.0, update / (self._settings.seconds + 1))),
            "policy_loss": -0.02 + 0.001 * next(noise),
            "value_loss": (0.5 - 0.3 * done) * (1 + 8 * gone),
            "update_time": UPDATE_S + sum(self._waits(now)),
        }

    def _waits(self, now: Conditions) -> tuple[float, float]:
        """Seconds of collecting and of waiting for the slowest lane, in one update."""
        collect = 0.75 * (1 + 0.8 * now.starved)
        wait = 0.02 if self._settings.gpus == 1 else 0.02 + 0.3 * (now.drag - 1) + 0.4 * now.heat
        return collect, wait

    def _phases(self, update: int, at: int, now: Conditions) -> list[PhaseEnded]:
        collect, wait = self._waits(now)
        took = {"collect": collect, "update": UPDATE_S, "sync": wait}
        return [PhaseEnded(at=at, phase=phase, duration_s=s, update=update) for phase, s in took.items()]


def _full(short: str) -> str:
    row = find(short, Scope.POLICY)
    if row is None:
        raise LookupError(f"the catalogue has no policy row {short!r}")
    return row.name

"""The policy of a simulated run: its numbers at each update, healthy without a fault.

Pure but for its dice. Must not know envs or machines.
"""

import math
from typing import Final

from overwatch.catalog import CUSTOM_PREFIX, Scope
from overwatch.events import EarlyStopped, Event, Measured, NonFiniteSeen, PhaseEnded, scalars
from overwatch.events.adding import added
from overwatch.simulate.faults import Conditions, ramp
from overwatch.simulate.settings import Dice, Settings, full_name

EARLY_STOP_KL: Final = 0.045
STOPPED_AT: Final = 0.015
"""Target of the updates that are stopped in time."""
UPDATE_S: Final = 0.2
BOTH_RISE_S: Final = 6.0
"""Seconds in which a proxy and the truth rise together."""
GAMED_S: Final = 60.0
"""Seconds in which a policy learns to game the proxy."""
_STEPS: Final = ("kl_divergence", "kl_joint", "kl_max", "clip_fraction", "grad_norm")
"""Rows that a batch of bad luck pulls."""
_POISONED: Final = ("policy_loss", "grad_norm")


class Policy:
    """One update a second."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dice = Dice(settings.seed, 3)
        self._luck = Dice(settings.seed, 7)
        self._bad_luck = Dice(settings.seed, 9)
        self._draw = Dice(settings.seed, 13)

    def advance(self, update: int, at: int, now: Conditions, mean_return: float | None) -> list[Event]:
        """The events of one update."""
        values = self._pulled(self._values(update, now), now)
        if mean_return is not None:
            values["return"] = mean_return
        if now.paid_s is not None:
            values |= self._returns(now.paid_s)
        events: list[Event] = [*self._phases(update, at, now)]
        if now.stopping or (now.collapse and values["kl_divergence"] > EARLY_STOP_KL):
            target = STOPPED_AT if now.stopping else 0.03
            events.append(
                EarlyStopped(
                    at=at, update=update, epoch=1, kl_divergence=values["kl_divergence"], target=target,
                    minibatches_skipped=24,
                )
            )  # fmt: skip
        if now.poisoned:
            values.update(dict.fromkeys(_POISONED, math.nan))
            events += [
                NonFiniteSeen(at=at, scope=Scope.POLICY, metric=full_name(name, Scope.POLICY), kind="nan")
                for name in _POISONED
            ]
        values.update(dict.fromkeys(now.lost, math.nan))
        told = {full_name(name, Scope.POLICY): value for name, value in values.items()}
        told |= {f"{CUSTOM_PREFIX}flood_{update * now.names + i}": 0.0 for i in range(now.names)}
        for row in now.absent:
            told.pop(full_name(row, Scope.POLICY), None)
        named = scalars(told)
        events.append(Measured(at=at, scope=Scope.POLICY, values=named, index=update))
        return events

    def _pulled(self, values: dict[str, float], now: Conditions) -> dict[str, float]:
        """The same rows as faults and chance pull them."""
        bad_luck = self._bad_luck.one() < now.wild
        for name, value in values.items():
            luck = 3.0 if bad_luck and name in _STEPS else 1.0
            values[name] = luck * value * now.times.get(name, 1.0) + now.plus.get(name, 0.0)
        if now.stopping:
            values["kl_divergence"] = 1.5 * STOPPED_AT
        return values

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
            "ratio_max": 1.35 * (1 + 0.03 * self._luck.jitter()),
            "ratio_min": 0.72 * (1 + 0.03 * self._luck.jitter()),
            "learning_rate": 3e-4 * (1 - 0.9 * min(1.0, update / (self._settings.seconds + 1))),
            "policy_loss": -0.02 + 0.001 * next(noise),
            "value_loss": (0.5 - 0.3 * done) * (1 + 8 * gone),
            "update_time": UPDATE_S + added(self._waits(now)),
        }

    def _returns(self, paid_s: float) -> dict[str, float]:
        """Both returns, of a draw of food and poison that moves them together; they part after a while."""
        food, poison = 50 + int(150 * self._draw.one()), 20 + int(80 * self._draw.one())
        rich, gamed = 0.75 + food / 500, ramp(paid_s - BOTH_RISE_S, GAMED_S)
        both = 7 + 3 * ramp(paid_s, BOTH_RISE_S)
        share = food / (food + poison) - 0.2 * gamed + 0.01 * self._draw.jitter()
        return {
            "proxy_return": (both + 30 * gamed) * rich + 0.3 * self._draw.jitter(),
            "true_return": (3 * both - 40 * gamed) * rich + 0.8 * self._draw.jitter(),
            "food_share": max(0.0, share),
            "food_offered": float(food),
            "poison_offered": float(poison),
        }

    def _waits(self, now: Conditions) -> tuple[float, float]:
        """Seconds of collecting and of waiting for the slowest lane, in one update."""
        collect = 0.75 * (1 + 0.8 * now.starved)
        wait = 0.02 if self._settings.gpus == 1 else 0.02 + 0.3 * (now.drag - 1) + 0.4 * now.heat
        return collect, wait

    def _phases(self, update: int, at: int, now: Conditions) -> list[PhaseEnded]:
        collect, wait = self._waits(now)
        within = {"env_wait": 0.5 * collect, "inference": 0.3 * collect}
        took = {"collect": collect, "update": UPDATE_S, "sync": wait, **within, **now.phases}
        return [PhaseEnded(at=at, phase=phase, duration_s=s, update=update) for phase, s in took.items()]

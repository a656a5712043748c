"""The envs of a simulated run: their steps, rewards, episodes and crashes, as columns.

Owns what each env earns and how long its steps take. Must not know seeds beyond how many cost rent.
"""

from typing import Final

import numpy as np

from overwatch.catalog import Scope
from overwatch.events import Column, EnvCrashed, EpisodeEnded, Event, Measured, NonFiniteSeen
from overwatch.events.adding import added
from overwatch.simulate.faults import Conditions
from overwatch.simulate.seeds import words
from overwatch.simulate.settings import SECOND, Dice, Floats, Ints, Settings, full_name

EPISODE_S: Final = (3.0, 5.0)
"""Shortest and longest episode."""
LEARNING_S: Final = 45.0
"""After this long half of what can be learned is learned."""
RENT: Final = 0.02
"""Of one slot that grows or has grown, a step."""
HARDER: Final = 0.8
"""Return that an episode loses with each level of the curriculum."""
CRASH_POOL: Final = 24
"""Most envs that a crash storm hits."""
DOWN_S: Final = 20.0
_FOR_EVER: Final = np.iinfo(np.int64).max
POISONED: Final = 2
"""Envs whose reward is NaN in a poisoned run."""
THROTTLED_CLOCK: Final = 0.58
"""Share of its clock that a fully throttled lane has left."""


class Fleet:
    """All envs of a run; `alive` is a mask of shape (n,), `ended` the envs whose episode just ended."""

    def __init__(self, settings: Settings) -> None:
        n = settings.n_envs
        self._settings = settings
        self._dice = Dice(settings.seed, 2)
        self._ids: Ints = np.arange(n, dtype=np.int64)
        self.lane: Ints = self._ids // settings.envs
        """Number of each env's lane."""
        self._skill: Floats = 0.03 * self._dice.noise(n)
        self._left: Ints = self._length(self._dice.uniform(n))
        self._left = np.maximum(1, (self._left * self._dice.uniform(n)).astype(np.int64))
        self._length_so_far: Ints = np.zeros(n, dtype=np.int64)
        self._earned: Floats = np.zeros(n)
        self._down_until: Ints = np.zeros(n, dtype=np.int64)
        self._pool = n - min(max(2, settings.envs // 4), CRASH_POOL, settings.envs)
        self._returns: list[float] = []
        self._stuck = float("nan")
        self._all_or_nothing = Dice(settings.seed, 8)
        self.alive: np.ndarray = np.ones(n, dtype=bool)
        self.ended: Ints = self._ids[:0]

    def _length(self, uniform: Floats) -> Ints:
        low, high = (self._settings.steps_in(seconds) for seconds in EPISODE_S)
        return low + ((high - low + 1) * uniform).astype(np.int64)

    def advance(self, step: int, at: int, now: Conditions, paying: Ints) -> list[Event]:
        """One step of every env that lives; `paying` counts each env's slots that cost rent, shape (n,)."""
        events = self._crash(step, at, now)
        seconds = self._settings.step_ns(step) / SECOND
        reward = self._rewards(seconds, now)
        events += self._ail(step, at, reward, now)
        self._earned += np.where(self.alive, np.nan_to_num(reward), 0.0)
        self._length_so_far += self.alive
        self._left -= self.alive
        metric = self._metric(seconds, now, paying)
        if now.ailment == "rent":
            metric[-1] = self._stuck = metric[-1] if np.isnan(self._stuck) else self._stuck
        columns = {"reward": reward, "metric": metric, "step_time": self._step_time(now)}
        if self._settings.slots:
            columns["rent"] = RENT * paying * (1 + 0.02 * self._dice.noise(paying.size))
            if now.ailment == "rent":
                columns["rent"][-1] = 10 * RENT * self._settings.slots
        ids = self._ids[self.alive]
        if ids.size:
            events.append(self._measured(ids, columns, step, at))
        self.ended = self._ids[self.alive & (self._left <= 0)]
        events += self._end_episodes(metric, at, now)
        if now.poisoned and step % self._settings.steps_in(1) == 0:
            events.append(_poison(self._ids[-POISONED:], at))
        return events

    def take_return(self) -> float | None:
        """Mean return of the episodes that ended since the last call; `None` of none."""
        returns, self._returns = self._returns, []
        return added(returns) / len(returns) if returns else None

    def _ail(self, step: int, at: int, reward: Floats, now: Conditions) -> list[Event]:
        """What the ailing env, the last, does at this step; its reward is changed in place."""
        env = self._ids[-1:]
        match now.ailment:
            case "crash" if self._down_until[-1] <= step:
                self._down_until[-1] = _FOR_EVER
                self.alive[-1] = False
                return [EnvCrashed(at=at, env_id=int(env[0]), step=step, error="killed by signal 11")]
            case "silent":
                self.alive[-1] = False
            case "nan":
                reward[-1] = np.nan
                if step % self._settings.steps_in(1) == 0:
                    return [_poison(env, at)]
            case "nan-column":
                reward[-1] = np.nan
            case "reward":
                reward[-1] -= 3.0 / self._settings.steps_in(sum(EPISODE_S) / 2)
        return []

    def _crash(self, step: int, at: int, now: Conditions) -> list[Event]:
        chance = self._dice.uniform(self._ids.size)
        self.alive = self._down_until <= step
        hit = self.alive & (chance < now.crashing / self._settings.rate_hz)
        hit[: self._pool] = False
        self._down_until[hit] = step + self._settings.steps_in(DOWN_S)
        self._earned[hit] = 0.0
        self._length_so_far[hit] = 0
        self.alive &= ~hit
        return [
            EnvCrashed(
                at=at, env_id=env, step=step, error="CUDA error 700: an illegal memory access",
                traceback=f"step() of env {env}\n  RuntimeError: CUDA error 700",
            )
            for env in self._ids[hit].tolist()
        ]  # fmt: skip

    def _rewards(self, seconds: float, now: Conditions) -> Floats:
        """Rewards of one step, shape (n,): an episode's goal spread over its steps, with noise."""
        learned = seconds / (seconds + LEARNING_S)
        goal = (0.1 + 0.6 * learned) * (1 - now.misery) - 0.9 * now.misery - HARDER * (now.level - 1)
        length = self._settings.steps_in(sum(EPISODE_S) / 2)
        noise = 0.1 / length**0.5 * self._dice.noise(self._ids.size)
        reward: Floats = (goal + self._skill) / length + noise
        if now.poisoned:
            reward[-POISONED:] = np.nan
        return reward

    def _metric(self, seconds: float, now: Conditions, paying: Ints) -> Floats:
        learned = seconds / (seconds + LEARNING_S)
        help_of_seeds = 0.05 * paying / max(1, self._settings.slots)
        level = 0.5 + 0.4 * learned + help_of_seeds - 0.25 * now.misery
        metric: Floats = level + 0.1 * self._skill + 0.004 * self._dice.noise(self._ids.size)
        return metric

    def _step_time(self, now: Conditions) -> Floats:
        usual = 0.8 / self._settings.rate_hz
        last = self.lane == self._settings.gpus - 1
        slower = now.drag / (1 - (1 - THROTTLED_CLOCK) * now.heat)
        times: Floats = usual * (1 + 0.03 * self._dice.noise(last.size)) * np.where(last, slower, 1.0)
        times[-1] *= 6.0 if now.ailment == "slow" else 1.0
        return times * (1 + 0.8 * now.starved)

    def _measured(self, ids: Ints, columns: dict[str, Floats], step: int, at: int) -> Measured:
        values = {
            full_name(name, Scope.ENV): Column.of(column[ids].astype(np.float32))
            for name, column in columns.items()
        }
        values["lane"] = words(self.lane[ids], self._settings.lanes)
        keys = {"env_id": Column.of(ids.astype(np.int32))}
        return Measured(at=at, scope=Scope.ENV, keys=keys, values=values, index=step)

    def _end_episodes(self, metric: Floats, at: int, now: Conditions) -> list[Event]:
        ended = self.ended
        lengths = self._length(self._dice.uniform(self._ids.size))
        if not ended.size:
            return []
        if now.sparse:
            self._earned[ended] = self._all_or_nothing.uniform(ended.size) < 0.3
        event = EpisodeEnded(
            at=at,
            env_id=Column.of(ended.astype(np.int32)),
            episode_return=Column.of(self._earned[ended].astype(np.float32)),
            length=Column.of(self._length_so_far[ended].astype(np.int32)),
            metric=Column.of(metric[ended].astype(np.float32)),
        )
        self._returns += self._earned[ended].tolist()
        self._left[ended] = lengths[ended]
        self._earned[ended] = 0.0
        self._length_so_far[ended] = 0
        return [event]


def _poison(env_ids: Ints, at: int) -> NonFiniteSeen:
    ids = tuple(env_ids.tolist())
    return NonFiniteSeen(
        at=at, scope=Scope.ENV, metric=full_name("reward", Scope.ENV), kind="nan", count=len(ids), env_ids=ids
    )

"""How the anomaly of each env went over the last minutes, as this terminal saw it: one sample a second.

Owns the samples. Must not know drawing. What was not on the board in a second has no sample there.
"""

from collections import deque
from typing import Final, NamedTuple

from overwatch.snapshot import Snapshot

SAMPLES: Final = 240
MOST_ENVS: Final = 1024
"""Envs whose samples are kept; beyond, those that were seen longest ago go."""


class Sample(NamedTuple):
    """One env in one second."""

    second: int
    score: float
    status: str


class Heat:
    """Samples of one run, by env."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._samples: dict[int, deque[Sample]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """The first snapshot of each second; another run, or a step back, starts anew."""
        second = int(snapshot.time)
        newest = max((samples[-1].second for samples in self._samples.values()), default=second)
        if snapshot.run.run_id != self._run or second < newest:
            self._samples.clear()
        self._run = snapshot.run.run_id
        for env in snapshot.envs:
            samples = self._samples.pop(env.env_id, None) or deque(maxlen=SAMPLES)
            if not samples or samples[-1].second < second:
                samples.append(Sample(second, env.anomaly.score, env.status))
            self._samples[env.env_id] = samples
        while len(self._samples) > MOST_ENVS:
            del self._samples[next(iter(self._samples))]

    def of(self, env_id: int, now: int, seconds: int) -> tuple[Sample | None, ...]:
        """An env's samples of the last `seconds`, oldest first; `None` where there is none."""
        seen = {sample.second: sample for sample in self._samples.get(env_id, ())}
        return tuple(seen.get(second) for second in range(now - seconds + 1, now + 1))

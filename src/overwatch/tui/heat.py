"""How the anomaly of each env went, as this terminal saw it: the worst sample of each second, and of longer.

Owns the samples. Must not know drawing. An env that was not on the board in a while has no sample there.
"""

from collections import deque
from typing import Final

import msgspec

from overwatch.snapshot import Snapshot

STEPS: Final = (1, 2, 5, 10, 30, 60)
"""Seconds that one sample can stand for."""
SAMPLES: Final = 240
"""Kept of each step: four minutes of seconds, four hours of minutes."""
MOST_ENVS: Final = 1024
"""Of one while; who comes onto the board after them has no sample there."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One env at its worst in one while."""

    score: float
    status: str


class _While:
    """The envs that were on the board in one while."""

    __slots__ = ("lanes", "number", "worst")

    def __init__(self, number: int) -> None:
        self.number = number
        """How many of its length there were before it, since 1970."""
        self.worst: dict[int, Sample] = {}
        self.lanes: dict[str, Sample] = {}
        """Lanes at their least utilization, from 0 to 1, with the mark of what holds them back."""


class Heat:
    """Samples of one run, by env."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._second = 0
        self._whiles: dict[int, deque[_While]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """The first snapshot of each second; another run, or a step back, starts anew."""
        second = int(snapshot.time)
        if snapshot.run.run_id != self._run or second < self._second:
            self._whiles = {step: deque(maxlen=SAMPLES) for step in STEPS}
        elif second == self._second:
            return
        self._run, self._second = snapshot.run.run_id, second
        samples = [(env.env_id, Sample(env.anomaly.score, env.status)) for env in snapshot.envs]
        lanes = [
            (lane.gpu_id, Sample(lane.utilization, "" if lane.bound is None else lane.bound.mark))
            for lane in snapshot.system.gpus
            if lane.utilization is not None
        ]
        for step, whiles in self._whiles.items():
            if not whiles or whiles[-1].number != second // step:
                whiles.append(_While(second // step))
            worst = whiles[-1].worst
            for env_id, sample in samples:
                before = worst.get(env_id)
                if (len(worst) < MOST_ENVS) if before is None else before.score < sample.score:
                    worst[env_id] = sample
            for gpu_id, sample in lanes:
                known = whiles[-1].lanes.setdefault(gpu_id, sample)
                if sample.score < known.score:
                    whiles[-1].lanes[gpu_id] = sample

    def of(self, env_id: int, now: int, cells: int, step: int = 1) -> tuple[Sample | None, ...]:
        """An env's worst in each of the last `cells` whiles of `step` seconds, oldest first; a gap is `None`.

        `step` is one of `STEPS`.
        """
        seen = {one.number: one.worst.get(env_id) for one in self._whiles.get(step, ())}
        last = now // step
        return tuple(seen.get(number) for number in range(last - cells + 1, last + 1))

    def of_lane(self, gpu_id: str, now: int, cells: int, step: int = 1) -> tuple[Sample | None, ...]:
        """A lane at its least utilization in each of the last `cells` whiles, likewise."""
        seen = {one.number: one.lanes.get(gpu_id) for one in self._whiles.get(step, ())}
        last = now // step
        return tuple(seen.get(number) for number in range(last - cells + 1, last + 1))

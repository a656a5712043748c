"""What this terminal keeps of the snapshots that came: policy, moments of an env, order of rows, anomalies.

Owns how much is kept, and when it starts anew. Must not know keys or drawing.
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from overwatch.snapshot import Detail, Snapshot

UPDATES: Final = 600
MOMENTS: Final = 600
HOLD_S: Final = 2.0
STEPS: Final = (1, 2, 5, 10, 30, 60)
"""Seconds that one sample can stand for."""
SAMPLES: Final = 240
"""Kept of each step: four minutes of seconds, four hours of minutes."""
MOST_ENVS: Final = 1024
"""Of one while; who comes onto the board after them has no sample there."""


class History:
    """Samples of one run, by the reading's short name."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._update: int | None = None
        self._values: dict[str, deque[float | None]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """What is new; another run, or an earlier update, starts anew with what the snapshot carries."""
        update = snapshot.run.update
        if snapshot.run.run_id != self._run or (update or 0) < (self._update or 0):
            self._values.clear()
            self._update = None
        fresh = None if self._update is None or update is None else update - self._update
        self._run, self._update = snapshot.run.run_id, update
        for name, reading in snapshot.policy.items():
            values = self._values.setdefault(name, deque(maxlen=UPDATES))
            if not values or fresh is None:
                values.clear()
                values.extend(reading.history)
            elif fresh > 0:
                missed = max(0, fresh - len(reading.history))
                values.extend([None] * min(missed, UPDATES))
                values.extend(reading.history[-fresh:])

    def of(self, name: str) -> tuple[float | None, ...]:
        """A reading's samples, oldest first."""
        return tuple(self._values.get(name, ()))


class Moment(NamedTuple):
    """An environment at one time."""

    time: float
    """Unix seconds."""
    detail: Detail

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with this moment's detail in the place of its own."""
        env_id = self.detail.env_id
        envs = tuple(self.detail.env or env if env.env_id == env_id else env for env in snapshot.envs)
        return msgspec.structs.replace(snapshot, envs=envs, detail=self.detail)


class Past:
    """The moments of one environment, oldest first."""

    def __init__(self) -> None:
        self._env_id: int | None = None
        self._moments: deque[Moment] = deque(maxlen=MOMENTS)
        self._back: int | None = None
        """The shown moment, counted back from the newest; `None` is now."""

    def take(self, snapshot: Snapshot, env_id: int | None) -> None:
        """The first snapshot of each second; another environment, or an earlier time, starts anew."""
        detail = snapshot.detail
        newest = self._moments[-1].time if self._moments else snapshot.time
        if env_id != self._env_id or snapshot.time < newest:
            self._env_id, self._back = env_id, None
            self._moments.clear()
        if env_id is None or detail is None or detail.env_id != env_id:
            return
        if self._moments and int(snapshot.time) == int(newest):
            return
        if self._back is not None:
            self._back = min(self._back + 1, MOMENTS - 1)
        self._moments.append(Moment(snapshot.time, detail))

    def step(self, by: int) -> str | None:
        """So many seconds on, or back; past the newest it is now again. What to say when that is the end."""
        back = (0 if self._back is None else self._back) - by
        if not self._moments or back >= len(self._moments):
            return "nothing earlier was seen here while this was open; r opens the recording"
        self._back = back if back > 0 else None
        return None

    @property
    def shown(self) -> Moment | None:
        """The moment that is shown; `None` is now."""
        return None if self._back is None else self._moments[-1 - self._back]


class Hold:
    """The order that was on the screen when a key was pressed."""

    def __init__(self) -> None:
        self._until = 0.0
        self._envs: dict[int, int] = {}
        self._groups: dict[str | None, int] = {}
        self._board: tuple[str, str, str | None] | None = None

    def press(self, shown: Snapshot | None, now: float) -> None:
        """A key was pressed while this was shown."""
        if shown is None:
            return
        if now >= self._until or self._board != _key(shown):
            self._envs = {env.env_id: place for place, env in enumerate(shown.envs)}
            self._groups = {group.gpu_id: place for place, group in enumerate(shown.board.groups)}
            self._board = _key(shown)
        self._until = now + HOLD_S

    def apply(self, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot in the held order, if one is held; another sort or filter ends it."""
        if now >= self._until or self._board != _key(snapshot):
            return snapshot
        last = len(self._envs)
        envs = sorted(snapshot.envs, key=lambda env: self._envs.get(env.env_id, last))
        groups = sorted(snapshot.board.groups, key=lambda group: self._groups.get(group.gpu_id, last))
        board = msgspec.structs.replace(snapshot.board, groups=tuple(groups), held=True)
        return msgspec.structs.replace(snapshot, envs=tuple(envs), board=board)

    def release(self) -> None:
        """Hold nothing: the user asked for another order."""
        self._until = 0.0


def _key(snapshot: Snapshot) -> tuple[str, str, str | None]:
    board = snapshot.board
    return board.sort, board.direction, board.filter


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

    def of(self, of: int | str, now: int, cells: int, step: int = 1) -> tuple[Sample | None, ...]:
        """An env's worst, or a lane's least utilization, in the last `cells` whiles of `step` seconds.

        Oldest first; a gap is `None`. `step` is one of `STEPS`.
        """
        seen = {
            one.number: one.lanes.get(of) if isinstance(of, str) else one.worst.get(of)
            for one in self._whiles.get(step, ())
        }
        last = now // step
        return tuple(seen.get(number) for number in range(last - cells + 1, last + 1))

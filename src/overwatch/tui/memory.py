"""What this terminal keeps of the snapshots: policy, moments of an env, order of rows, anomalies, feed.

Owns how much is kept, when it starts anew, what the feed's toggles and its search mean, and which line of the
feed a finding is about. Must not know keys or drawing.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from overwatch.snapshot import Detail, FeedLine, Finding, Snapshot

UPDATES: Final = 600
MOMENTS: Final = 600
HOLD_S: Final = 2.0
STEPS: Final = (1, 2, 5, 10, 30, 60)
"""Seconds that one sample can stand for."""
SAMPLES: Final = 240
"""Kept of each step: four minutes of seconds, four hours of minutes."""
MOST_ENVS: Final = 1024
"""Of one while; who comes onto the board after them has no sample there."""


LINES: Final = 2000
TOGGLES: Final = ("errors", "seeds", "policy", "log")
_SEEDS: Final = frozenset({"seed_stage_changed", "gate_evaluated"})
_FREQUENT: Final = _SEEDS | {"measured"}
_ALARMS: Final = frozenset({"warning", "critical"})
_ENDS: Final = (">FOSSILIZED", ">PRUNED")
_DEBUG: Final = frozenset({"debug", "trace"})
_POLICY: Final = frozenset({"early_stopped", "curriculum_changed", "non_finite_seen", "measured"})
_BEFORE_S: Final = 10.0
"""What led to a finding was logged so long before it at most: a finding has to hold before it is one."""


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
        """So many seconds on, or back; past the newest it is now again. A notice when that is the end."""
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


class Scrollback:
    """Lines in order of arrival; a snapshot repeats those that it shares with the one before."""

    def __init__(self) -> None:
        self._lines: deque[FeedLine] = deque(maxlen=LINES)
        self._run: str | None = None
        self._time = 0.0

    def take(self, snapshot: Snapshot) -> int:
        """Add what is new in a snapshot; returns how many lines that were.

        Another run, or a step back in time, starts anew.
        """
        if snapshot.run.run_id != self._run or snapshot.time < self._time:
            self._lines.clear()
        self._run, self._time = snapshot.run.run_id, snapshot.time
        fresh = snapshot.feed
        if self._lines:
            newest = self._lines[-1]
            same = (place for place in range(len(fresh) - 1, -1, -1) if fresh[place] == newest)
            fresh = fresh[next(same, -1) + 1 :]
        self._lines.extend(fresh)
        return len(fresh)

    def lines(
        self, toggles: frozenset[str] = frozenset(), search: str = "", *, facts: bool = False
    ) -> tuple[FeedLine, ...]:
        """Oldest first: of any of the toggled kinds (all without), with every word of the search.

        With neither, `facts` leaves out what comes too fast to be read.
        """
        words = search.lower().split()
        if not toggles and not words:
            return tuple(line for line in self._lines if _is_fact(line)) if facts else tuple(self._lines)
        return tuple(
            line
            for line in self._lines
            if (not toggles or any(_is(line, toggle) for toggle in toggles))
            and all(_has(line, word) for word in words)
        )


def _is_fact(line: FeedLine) -> bool:
    """Warnings and all that happens now and then; of a seed only its end, and no lines for debugging."""
    if line.severity in _ALARMS or line.message.endswith(_ENDS):
        return True
    return line.kind not in _FREQUENT and line.severity not in _DEBUG


def _is(line: FeedLine, toggle: str) -> bool:
    if toggle == "errors":
        return line.severity == "critical" or (line.severity == "warning" and line.kind not in _SEEDS)
    if toggle == "log":
        return line.kind == "log_line"
    if toggle == "seeds":
        return line.kind in _SEEDS
    return line.kind in _POLICY or "update" in line.fields or line.message.startswith("update=")


def _has(line: FeedLine, word: str) -> bool:
    """A word anywhere in the line; `env=9` and its like are compared whole."""
    key, sign, value = word.partition("=")
    lane = (line.gpu_id or "").lower()
    ids = {
        "env": {"" if line.env_id is None else str(line.env_id)},
        "gpu": {lane, lane.removeprefix("gpu")},
        "slot": {(line.slot or "").lower()},
        "seed": {(line.seed_id or "").lower()},
    }
    if sign and key in ids:
        return value in ids[key]
    texts = (line.subsystem, line.message, line.seed_id, line.slot, line.gpu_id, line.severity)
    fields = (f"{name}={text}" for name, text in line.fields.items())
    named = "" if line.env_id is None else f"env {line.env_id}"
    return word in " ".join((*(text or "" for text in texts), *fields, named)).lower()


def line_of(finding: Finding, feed: Sequence[FeedLine]) -> int | None:
    """Which line, counted back from the newest: the last one about its subject until it began.

    Without one the first line after it began; `None` where the feed does not go back so far.
    """
    if not feed or feed[0].time > finding.since:
        return None
    newest = len(feed) - 1
    until = [place for place, line in enumerate(feed) if line.time <= finding.since + 0.5]
    own = (
        place
        for place in reversed(until)
        if feed[place].time >= finding.since - _BEFORE_S and _about(finding, feed[place])
    )
    after = min(until[-1] + 1, newest) if until[-1] < newest else until[-1]
    return newest - next(own, after)


def finding_of(line: FeedLine, findings: Sequence[Finding]) -> Finding | None:
    """The finding about what the line is about that was open at its time or came soon after; worst first."""
    near = (
        one
        for one in findings
        if one.since - _BEFORE_S <= line.time
        and (one.cleared_at is None or line.time <= one.cleared_at)
        and _about(one, line)
    )
    return min(near, key=lambda one: one.subject.scope != "env", default=None)


def _about(finding: Finding, line: FeedLine) -> bool:
    """Whether both are about the same env or lane, or both about the policy or the run."""
    scope, name = finding.subject.scope, finding.subject.id
    if scope == "env":
        return line.env_id is not None and str(line.env_id) == name
    if scope == "gpu":
        return line.gpu_id is not None and line.gpu_id == name
    return (
        scope == "policy" and line.env_id is None and "update" in {line.message.split("=")[0], *line.fields}
    )

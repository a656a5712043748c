"""Which groups make the next batch.

Owns the order in which groups are served. A batch has exactly as many sequences as the trainer asked for,
from groups of any sizes. First comes what would be too old for the batches after this one; then each present
environment's minimum, as far as it has groups; then always the environment with the least sequences by
weight. Inside an environment the oldest version goes first, and the oldest group of it.

A batch waits for groups that run on tickets where it is the last one that they can be in. Not waiting would
discard the slow ones, and hard problems are slow. A ticket expires, so no wait is for ever.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from overwatch_rl.rollouts.answers import Expiry
from overwatch_rl.rollouts.shares import bounded_sums, present
from overwatch_rl.rollouts.state import Lane, State, Ticket
from overwatch_rl.rollouts.wire import PolicyVersion


@dataclass(slots=True)
class Candidates:
    """What a batch may be made of, at the version that the trainer has when it gets it."""

    version: PolicyVersion
    lanes: dict[Lane, Sequence[int]]
    tickets: list[Ticket]
    """Groups that are being generated."""


def over_age(state: State, candidates: Candidates) -> list[tuple[Lane, Expiry]]:
    """Lanes that no batch may have any more; an assumed version is no reason to drop a group."""
    found: list[tuple[Lane, Expiry]] = []
    for lane in candidates.lanes:
        if lane.source == "assumed":
            continue
        if state.is_abandoned(lane.version):
            found.append((lane, "abandoned"))
        elif candidates.version.number - lane.version.number > state.max_staleness:
            found.append((lane, "stale"))
    return found


@dataclass(slots=True)
class Packing:
    """A batch in the making."""

    state: State
    lanes: Mapping[Lane, Sequence[int]]
    left: int
    """Sequences that are still wanted."""
    taken: list[int] = field(default_factory=list)
    used: Counter[Lane] = field(default_factory=Counter)
    """Groups taken by lane."""
    counts: Counter[int] = field(default_factory=Counter)
    """Groups that are left, by size."""
    virtual: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for lane, ids in self.lanes.items():
            self.counts[lane.sequences] += len(ids)
            self.virtual[lane.env_id] = self.state.envs[lane.env_id].virtual

    def sequences(self, wanted: Callable[[Lane], bool]) -> int:
        """Sequences that were taken from some lanes."""
        return sum(lane.sequences * count for lane, count in self.used.items() if wanted(lane))

    def take(self, wanted: Callable[[Lane], bool], enough: float) -> None:
        """Take from some lanes, the environment served least first, until they have given enough.

        A group that cannot be part of this batch any more never can again: each choice only narrows it.
        """
        given = self.sequences(wanted)
        by_env: dict[int, list[Lane]] = {}
        for lane in self.lanes:
            if wanted(lane):
                by_env.setdefault(lane.env_id, []).append(lane)
        line = [(self.virtual[env_id], env_id) for env_id in by_env]
        heapq.heapify(line)
        while line and self.left and given < enough:
            _, env_id = heapq.heappop(line)
            chosen = self._oldest(by_env[env_id])
            if chosen is None:
                continue
            self._choose(chosen)
            given += chosen.sequences
            heapq.heappush(line, (self.virtual[env_id], env_id))

    def _oldest(self, lanes: list[Lane]) -> Lane | None:
        """The lane with the oldest group that this batch can have; those that cannot are left out."""
        lanes.sort(key=self._age, reverse=True)
        while lanes:
            lane = lanes[-1]
            if self.used[lane] < len(self.lanes[lane]) and self._fits(lane.sequences):
                return lane
            lanes.pop()
        return None

    def _age(self, lane: Lane) -> tuple[int, int, int]:
        ids, used = self.lanes[lane], self.used[lane]
        return lane.version.lineage, lane.version.number, ids[used] if used < len(ids) else 0

    def _fits(self, size: int) -> bool:
        """Whether groups that are left complete the batch once it has one of this size."""
        if size > self.left:
            return False
        if size * self.counts[size] >= self.left and self.left % size == 0:
            return True
        counts = self.counts.copy()
        counts[size] -= 1
        rest = self.left - size
        return bool(bounded_sums(counts, rest) >> rest & 1)

    def _choose(self, lane: Lane) -> None:
        self.taken.append(self.lanes[lane][self.used[lane]])
        self.used[lane] += 1
        self.counts[lane.sequences] -= 1
        self.left -= lane.sequences
        self.virtual[lane.env_id] += lane.sequences / self.state.envs[lane.env_id].weight


def assembled(state: State, candidates: Candidates) -> Sequence[int] | int | None:
    """The groups of the next batch; or how many sequences that run it waits for; or nothing."""
    packing = Packing(state=state, lanes=candidates.lanes, left=state.batch_size)
    missing = _take_due(packing, candidates)
    if missing:
        return missing
    wished = sum(env.minimum for env in present(state).values())
    for env_id, env in present(state).items():
        if env.minimum:
            enough = env.minimum / max(1.0, wished) * state.batch_size
            packing.take(lambda lane, env_id=env_id: lane.env_id == env_id, enough)  # type: ignore[misc]
    packing.take(lambda _: True, state.batch_size)
    return None if packing.left else packing.taken


def _take_due(packing: Packing, candidates: Candidates) -> int:
    """Take what the batches after this one could not have; returns the sequences of it that still run.

    Of everything that must be served within n batches, all that n - 1 batches cannot hold goes into this one.
    """
    state, now = packing.state, candidates.version

    def due(version: PolicyVersion, batch: int) -> bool:
        """Whether this batch is the last that may have groups of a version."""
        is_last = version.number + state.max_staleness <= now.number + batch
        return is_last and not state.is_abandoned(version)

    # Between the batches in which another version falls due, no more is needed than before them.
    versions = {lane.version for lane in candidates.lanes} | {found.version for found in candidates.tickets}
    last = {max(0, version.number + state.max_staleness - now.number) for version in versions}
    for batch in sorted(found for found in last if found <= state.max_staleness):

        def wanted(lane: Lane, batch: int = batch) -> bool:
            """Whether a lane is due."""
            return lane.source == "stated" and due(lane.version, batch)

        queued = sum(lane.sequences * len(ids) for lane, ids in candidates.lanes.items() if wanted(lane))
        running = sum(found.sequences for found in candidates.tickets if due(found.version, batch))
        need = min(state.batch_size, queued + running - batch * state.batch_size)
        if need <= 0:
            continue
        packing.take(wanted, need)
        missing = need - packing.sequences(wanted)
        if missing > 0 and running:
            return min(missing, running)
    return 0

"""Tables of steps: beside a plain model, and what is drawn of them."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest, Version
from overwatch_rl.replay.base import Capacity, Sampled, TableConfig, Taken
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End
from overwatch_rl.replay.selectors import Priorities, Prioritised
from overwatch_rl.replay.steps import Steps
from tests.overwatch_rl.replay.stepping import ENCODING, chunk_of

ENDS: tuple[End, ...] = ("terminated", "truncated", "cut")
ALPHA = 0.7


def table(items: int, selector: str = "prioritised", **own: object) -> Steps:
    """A table with so many rows, which draws the same at every run of a test."""
    config = TableConfig(
        name="t",
        kind="steps",
        selector=selector,
        remover="oldest",
        capacity=Capacity(items=items),
        priorities=Priorities(alpha=ALPHA, epsilon=1e-3),
        seed=0,
    )
    return Steps(replace(config, **own), ENCODING)  # type: ignore[arg-type]  # fields of it


@dataclass
class Model:
    """What a table of so many rows holds, the plain way."""

    rows: int
    chunks: list[tuple[int, Chunk, int]] = field(default_factory=list)
    """First position, chunk, number of its first step; oldest first."""
    shares: dict[tuple[int, int], float] = field(default_factory=dict)
    """By slot and generation."""
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    last: dict[int, Chunk] = field(default_factory=dict)
    """By number of the last step of a chunk."""
    head: int = 0
    largest: float = (1.0 + 1e-3) ** ALPHA

    def ids(self, position: int, chunk: Chunk) -> list[tuple[int, int]]:
        """Those of a chunk's steps."""
        return [(at % self.rows, at // self.rows) for at in range(position, position + chunk.steps)]

    def append(self, chunk: Chunk, first: int) -> None:
        """Take a chunk, whole; the oldest make room."""
        while self.chunks and self.head + chunk.steps - self.chunks[0][0] > self.rows:
            self.remove(self.chunks.pop(0))
        self.chunks.append((self.head, chunk, first))
        for offset, one in enumerate(self.ids(self.head, chunk)):
            self.shares[one] = self.largest
            self.numbers[one] = first + offset
        self.last[first + chunk.steps - 1] = chunk
        self.head += chunk.steps

    def remove(self, held: tuple[int, Chunk, int]) -> None:
        """Forget a chunk."""
        for one in self.ids(held[0], held[1]):
            del self.shares[one], self.numbers[one]

    def update(self, ids: list[tuple[int, int]], priorities: list[float]) -> int:
        """Set priorities; how many were late."""
        late = 0
        for one, priority in zip(ids, priorities, strict=True):
            if one not in self.shares:
                late += 1
                continue
            self.shares[one] = (priority + 1e-3) ** ALPHA
            self.largest = max(self.largest, self.shares[one])
        return late

    def check(self, sampled: Sampled) -> None:
        """Each drawn step is held, whole, and followed by what followed it."""
        columns = sampled.columns
        for row, one in enumerate(zip(sampled.slots.tolist(), sampled.generations.tolist(), strict=True)):
            number = self.numbers[one]
            chunk = self.last.get(number)
            end = None if chunk is None else chunk.end
            after = number if end == "terminated" else number + 1
            assert columns["observation"][row].tolist() == [number, -number]
            assert columns["next_observation"][row].tolist() == [after, -after]
            assert (columns["action"][row], columns["reward"][row]) == (3 * number, number % 1000)
            assert (columns["terminated"][row], columns["truncated"][row]) == (
                end == "terminated",
                end == "truncated",
            )

    def check_shares(self, held: Steps) -> None:
        """The table's priorities are these, of these slots and of no other."""
        assert isinstance(held._selector, Prioritised)
        expected = np.zeros(self.rows)
        for (slot, _), share in self.shares.items():
            expected[slot] = share
        tree = held._selector.tree
        np.testing.assert_allclose(tree.at(np.arange(self.rows)), expected, rtol=1e-12)
        assert tree.total() == pytest.approx(sum(self.shares.values()), rel=1e-9)
        assert held.ring.num_steps == len(self.shares)


def drive(operations: int, rows: int, seed: int) -> tuple[Steps, int]:
    """So many operations on a table and its model, compared; the table, and priorities that were late."""
    random = np.random.default_rng(seed)
    held, model = table(rows), Model(rows)
    late, first = 0, 0
    stale: list[tuple[int, int]] = [(0, 5), (rows, 0), (-1, 1), (3, 1 << 60)]
    for operation in range(operations):
        kind = random.random()
        if kind < 0.3 or not model.shares:
            chunk = chunk_of(first, int(random.integers(1, 9)), ENDS[random.integers(3)])
            assert isinstance(held.append([chunk], operation), Taken)
            model.append(chunk, first)
            first += chunk.steps
        elif kind < 0.65:
            sampled = held.sample(4)
            assert sampled is not None
            model.check(sampled)
            stale += zip(sampled.slots.tolist(), sampled.generations.tolist(), strict=True)
        else:
            chosen = [stale[at] for at in random.integers(len(stale), size=3)]
            priorities = random.exponential(size=3)
            found = held.update_priorities(*map(np.array, zip(*chosen, strict=True)), priorities)  # type: ignore[call-arg]
            expected = model.update(chosen, priorities.tolist())
            assert found == expected
            late += found
            stale = stale[-256:]
        if operation % 1000 == 0:
            model.check_shares(held)
    model.check_shares(held)
    return held, late


@pytest.mark.parametrize("operations", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_table_is_what_a_plain_model_gives_over_many_operations(operations: int) -> None:
    """Slots, generations, priorities and columns agree, rows wrap many times, late priorities are counted."""
    held, late = drive(operations, rows=203, seed=1)
    assert held.ring.head > 100 * held.ring.rows
    assert late > 1000
    assert held.stats().late == {"priority": late}


def test_a_late_priority_never_reaches_a_reused_slot() -> None:
    """The slot has a new step: the old one's priority is dropped and counted, the new one's stays."""
    held = table(8)
    held.append([chunk_of(0, 8, "terminated")], 0)
    old = held.sample(8)
    assert old is not None
    held.append([chunk_of(8, 8, "terminated")], 1)
    assert held.update_priorities(old.slots, old.generations, np.full(8, 9.0)) == 8
    new = held.sample(8)
    assert new is not None
    assert new.generations.tolist() == [1] * 8
    assert new.weights.tolist() == [1.0] * 8
    assert held.stats().late == {"priority": 8}


@pytest.mark.parametrize("selector", ["uniform", "prioritised"])
def test_steps_are_drawn_in_proportion(selector: str) -> None:
    """Counts of 40,000 draws lie within five standard errors of their share, final observations have none.

    Draws of one batch are stratified, so a multinomial's error is above the true one; for 40 steps the
    chance that one of them fails by accident is below 40 x 6e-7.
    """
    held = table(64, selector)
    held.append([chunk_of(0, 15, "cut"), chunk_of(15, 1, "truncated"), chunk_of(16, 24, "terminated")], 0)
    every = held.sample(4096)
    assert every is not None
    slots, rows = np.unique(every.slots, return_index=True)
    assert len(slots) == 40
    priorities = np.random.default_rng(3).exponential(size=40)
    held.update_priorities(slots, every.generations[rows], priorities)
    shares = np.ones(40) if selector == "uniform" else (priorities + 1e-3) ** ALPHA
    shares /= shares.sum()
    counts, draws = np.zeros(64), 40_000
    for _ in range(draws // 100):
        sampled = held.sample(100)
        assert sampled is not None
        np.add.at(counts, sampled.slots, 1)
    errors = (counts[slots] - draws * shares) / np.sqrt(draws * shares * (1 - shares))
    assert np.abs(errors).max() < 5.0
    assert counts.sum() == counts[slots].sum()


def test_importance_weights_undo_the_share_of_each_step() -> None:
    """(N P)^-beta over the largest of the batch; the exponent 0 weighs nothing."""
    held = table(4)
    held.append([chunk_of(0, 4, "terminated")], 0)
    held.update_priorities(np.arange(4), np.zeros(4, np.int64), np.array([1.0, 2.0, 3.0, 4.0]))
    sampled, unweighted = held.sample(64, exponent=0.5), held.sample(64, exponent=0.0)
    assert sampled is not None
    assert unweighted is not None
    raw = ((np.array([1.0, 2.0, 3.0, 4.0]) + 1e-3) ** ALPHA)[sampled.slots] ** -0.5
    np.testing.assert_allclose(sampled.weights, raw / raw.max(), rtol=1e-6)
    assert set(unweighted.weights.tolist()) == {1.0}


def test_a_chunk_larger_than_the_table_is_refused_and_nothing_goes_for_it() -> None:
    """What is held stays, and the message has both numbers."""
    held = table(8)
    held.append([chunk_of(0, 5, "terminated")], 0)
    refused = held.append([chunk_of(5, 5, "cut"), chunk_of(10, 4, "cut")], 1)
    assert getattr(refused, "reason", None) == "too_large"
    assert "9 steps of" in str(refused)
    assert held.stats().steps == 5


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut"])
@pytest.mark.parametrize("steps", [1, 3, 16])
def test_a_table_holds_as_many_steps_as_it_has_items_however_they_come(end: End, steps: int) -> None:
    """Whole chunks of one step or more, of any end: 16 items are 16 steps."""
    held = table(16, "uniform")
    for number in range(32):
        held.append([chunk_of(steps * number, steps, end)], number)
    stats = held.stats()
    assert stats.items == 16 // steps * steps
    assert stats.accepted == stats.items + stats.removed["evicted"]


@pytest.mark.parametrize("steps", [1, 16])
def test_bytes_bound_a_table_with_all_that_its_chunks_take(steps: int) -> None:
    """The oldest go, counted; a request larger than all of it is refused; too few for the limiter too."""
    most = 1 << 16
    held = table(1 << 20, capacity=Capacity(items=1 << 20, bytes=most))
    for number in range(2_000):
        held.append([chunk_of(number, steps, env="e" * (number % 300))], number)
    stats = held.stats()
    assert 0.9 * most < stats.bytes <= most
    assert stats.accepted == stats.items + stats.removed["evicted"]
    refused = held.append([chunk_of(0, 4, env="e" * most)], 1)
    assert getattr(refused, "reason", None) == "too_large"
    with pytest.raises(ValueError, match="has room for 0 single steps, too few for min_steps 1"):
        table(1, capacity=Capacity(items=1, bytes=3))


def test_what_is_removed_is_not_drawn() -> None:
    """By env, age of the version, lineage that was left, time, or all but the newest; counted by reason."""

    def filled() -> Steps:
        held = table(64, "uniform")
        for at, (env, version) in enumerate([("a", (1, 1)), ("b", (1, 2)), ("a", (1, 3)), ("b", (2, 3))]):
            held.append([chunk_of(10 * at, 4, "cut", env=env, version=version)], at)
        return held

    def left(held: Steps) -> set[int]:
        sampled = held.sample(256)
        return set() if sampled is None else {int(one) // 10 for one in sampled.columns["observation"][:, 0]}

    for which, expected in (
        (ClearRequest(env_id="a"), {1, 3}),
        (ClearRequest(before_timestamp=2), {2, 3}),
        (ClearRequest(older_than=Version(lineage=1, number=3)), {2, 3}),
        (ClearRequest(beyond=Version(lineage=1, number=1)), {0, 3}),
        (ClearRequest(keep_last=6), {2, 3}),
        (ClearRequest(env_id="b", before_timestamp=2), {0, 2, 3}),
        (ClearRequest(), set()),
    ):
        held = filled()
        assert held.remove(which) == 4 * (4 - len(expected))
        assert left(held) == expected
        stats = held.stats()
        assert (stats.steps, stats.removed) == (4 * len(expected), {"cleared": 16 - 4 * len(expected)})
        held.append([chunk_of(40, 4)], 5)
        assert left(held) == expected | {4}


def test_few_steps_among_many_removed_ones_are_still_drawn_alike() -> None:
    """One of 32 chunks is left, in the middle: each of its steps is found."""
    held = table(256, "uniform")
    for at in range(32):
        held.append([chunk_of(8 * at, 7, env="rare" if at == 16 else "common")], at)
    held.append([chunk_of(8 * 32, 1, env="rare")], 32)
    held.remove(ClearRequest(env_id="common"))
    sampled = held.sample(512)
    assert sampled is not None
    assert {int(one) for one in sampled.columns["observation"][:, 0]} == {*range(128, 135), 256}


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 1e31])
def test_a_priority_that_is_none_is_refused_whole(wrong: float) -> None:
    """The value is named and no priority of the request counts."""
    held = table(8)
    held.append([chunk_of(0, 4)], 0)
    with pytest.raises(ValueError, match=f"a priority is {wrong}".replace("+", r"\+")):
        held.update_priorities(np.arange(2), np.zeros(2, np.int64), np.array([5.0, wrong]))
    sampled = held.sample(16)
    assert sampled is not None
    assert set(sampled.weights.tolist()) == {1.0}


def test_an_empty_table_has_no_sample() -> None:
    """`None`, never made-up steps; and what is asked wrongly is named."""
    held = table(8)
    assert held.sample(4) is None
    with pytest.raises(ValueError, match="a sample of 0 steps"):
        held.sample(0)
    with pytest.raises(ValueError, match="exponent of importance weights is 2"):
        held.sample(4, exponent=2.0)
    with pytest.raises(ValueError, match="give as many of each"):
        held.update_priorities(np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(2))


def test_what_a_table_of_steps_does_not_offer_is_refused_at_the_start() -> None:
    """Other selectors and removers, and encodings that have no steps to draw."""
    with pytest.raises(ValueError, match="'fifo' is none of prioritised, uniform"):
        Steps.check(TableConfig(name="t", selector="fifo", remover="oldest"))
    with pytest.raises(ValueError, match="'refuse' is not oldest"):
        Steps.check(TableConfig(name="t", selector="uniform", remover="refuse"))
    bare = Encoding(columns=(Column(name="observation", dtype="int8"),))
    with pytest.raises(ValueError, match="needs the column final_observation"):
        Steps(TableConfig(name="t", selector="uniform"), bare)
    beside = Encoding(columns=(*ENCODING.columns, Column(name="seed", dtype="int64", per_step=False)))
    with pytest.raises(ValueError, match="'seed' has one row a chunk"):
        Steps(TableConfig(name="t", selector="uniform"), beside)

"""Tables of sequences: each chunk used once, whatever learners do; sums that always add up."""

import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest, Version
from overwatch_rl.replay.base import Capacity, Refused, Taken, Wait
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.sequences import MOST_LEARNERS, REMOVERS, Sequences
from tests.overwatch_rl.replay.sequencing import SECOND, Driven, Player, chunk_of, memory, numbers


def test_a_lease_has_as_few_of_the_oldest_chunks_as_are_enough() -> None:
    """Whole chunks in order; nothing where there are not enough steps."""
    life = Driven(memory())
    life.fill(5, steps=2)

    assert numbers(life.lease(3)) == [0, 1]
    assert numbers(life.lease(1, 1)) == [2]
    assert life.lease(5, 2) is None
    assert numbers(life.lease(4, 2)) == [3, 4]
    life.check()


def test_a_reply_that_was_lost_is_given_again() -> None:
    """The same lease, flagged; the next one only once the learner has it."""
    life = Driven(memory())
    life.fill(4)
    first, again, second = life.lease(2), life.lease(2), life.lease(2, 1)

    assert first is not None
    assert again is not None
    assert (first.number, again.number) == (1, 1)
    assert numbers(first) == numbers(again) == [0]
    assert [item.is_redelivered for item in (*first.items, *again.items)] == [False, True]
    assert numbers(second) == [1]


def test_a_checkpoint_acknowledges_what_was_trained_before_it() -> None:
    """The leases up to its cursor; later ones stay leased."""
    life = Driven(memory())
    life.fill(4)
    for after in range(3):
        life.lease(2, after)

    assert life.table.acknowledge("l", 2) == 2
    assert life.table.acknowledge("l", 2) == 0
    assert life.table.acknowledge("nobody", 2) == 0
    stats = life.table.stats()
    assert (stats.acknowledged, stats.leased, stats.queued) == (2, 1, 1)
    life.check()


def test_a_learner_that_resumes_gets_what_its_checkpoint_lacks() -> None:
    """Leases up to the cursor are used, later ones void: their chunks come again first, flagged."""
    life = Driven(memory())
    life.fill(5)
    for after in range(4):
        life.lease(2, after)
    resumed = life.table.resume("l", 2)

    assert (resumed.acknowledged, resumed.redelivered, resumed.gap) == (2, 2, 0)
    assert resumed.next_number == 5
    assert not resumed.is_unknown
    lease = life.lease(6, 4)
    assert lease is not None
    assert lease.number == 5
    assert numbers(lease) == [2, 3, 4]
    assert [item.is_redelivered for item in lease.items] == [True, True, False]
    life.check()


def test_a_gap_is_counted() -> None:
    """A checkpoint older than the last acknowledgement lacks chunks that are gone."""
    life = Driven(memory())
    life.fill(5)
    for after in range(4):
        life.lease(2, after)
    life.table.acknowledge("l", 3)

    assert life.table.resume("l", 1).gap == 2
    unknown = life.table.resume("l", 17)
    assert unknown.is_unknown
    assert unknown.next_number == 18


def test_a_lease_ends_by_time() -> None:
    """Its chunks go to the next one who asks, flagged; an extended lease does not."""
    life = Driven(memory())
    life.fill(2)
    life.lease(2, learner="l")
    life.lease(2, learner="m")
    life.now += 59 * SECOND
    assert life.table.extend("m", life.now) == 1
    assert life.table.expire(life.now) == 0
    life.now += SECOND

    assert life.table.expire(life.now) == 1
    lease = life.lease(2, 1, learner="m")
    assert lease is not None
    assert numbers(lease) == [0]
    assert lease.items[0].is_redelivered
    life.check()


def test_an_acknowledgement_that_is_late_counts_while_nobody_else_has_the_chunks() -> None:
    """What is still queued is used; what went to another lease meanwhile is counted as late."""
    life = Driven(memory())
    life.fill(3)
    life.lease(4)
    life.now += 61 * SECOND
    life.table.expire(life.now)
    other = life.lease(2, learner="m")

    assert numbers(other) == [0]
    assert life.table.acknowledge("l", 1) == 1
    assert life.table.stats().late == {"ack": 1}
    assert numbers(life.lease(2, 1)) == [2]
    life.check()


def test_a_lease_that_never_arrived_is_never_acknowledged() -> None:
    """It ended by time before the learner asked again: a later cursor does not count for it."""
    life = Driven(memory())
    life.fill(3)
    life.lease(2)
    life.now += 61 * SECOND
    life.table.expire(life.now)
    lease = life.lease(2, 0)

    assert lease is not None
    assert lease.number == 2
    assert numbers(lease) == [0]
    assert life.table.acknowledge("l", 2) == 1
    assert life.table.stats().queued == 2


def test_a_full_table_takes_nothing_and_drops_nothing() -> None:
    """Leased chunks count; an acknowledgement makes room. What can never fit is refused."""
    life = Driven(memory(items=3))
    life.fill(3)
    life.lease(2)

    assert life.send(chunk_of(9)) == Wait(reason="full")
    life.table.acknowledge("l", 1)
    assert isinstance(life.send(chunk_of(3)), Taken)
    assert numbers(life.lease(6, 1)) == [1, 2, 3]
    refused = life.send(*(chunk_of(n) for n in range(4)))
    assert isinstance(refused, Refused)
    assert refused.reason == "too_large"
    large = life.send(chunk_of(0, steps=30_000))
    assert isinstance(large, Refused)
    assert "send fewer at once" in large.message


def test_a_table_reports_that_it_is_full_until_there_is_room() -> None:
    """From the append that found no room to what makes some; and what it may hold."""
    life = Driven(memory(items=3))
    life.fill(3)
    life.lease(2)
    reported = [life.table.stats().is_full]
    life.send(chunk_of(9))
    life.lease(1)
    reported.append(life.table.stats().is_full)
    life.table.acknowledge("l", 1)
    reported.append(life.table.stats().is_full)
    life.send(chunk_of(3), chunk_of(4), chunk_of(5))
    reported.append(life.table.stats().is_full)
    life.send(chunk_of(3))
    reported.append(life.table.stats().is_full)

    assert reported == [False, True, False, True, False]
    assert life.table.stats().most_items == 3
    assert life.table.stats().most_bytes == life.table.config.capacity.bytes


def test_a_table_may_make_room_by_what_is_oldest() -> None:
    """Queued chunks only, by name; what is leased stays."""
    life = Driven(memory(items=3, remover="oldest"))
    life.fill(3)
    life.lease(2)
    life.fill(1)

    assert life.table.stats().removed == {"evicted": 1}
    assert numbers(life.lease(4, 1)) == [2, 3]
    assert life.send(chunk_of(9)) == Wait(reason="full")
    life.check()


@pytest.mark.parametrize("most", [1 << 16, 1 << 20])
def test_a_table_is_bounded_by_all_memory_that_its_chunks_take(most: int) -> None:
    """Tiny chunks and long names too; what goes is counted, what cannot go is waited for."""
    resident = tracemalloc_of(most)

    assert 0.6 * most < resident < 1.05 * most


def tracemalloc_of(most: int) -> int:
    """Bytes that a full table takes."""
    config = replace(memory(items=1 << 30, remover="oldest"), capacity=Capacity(items=1 << 30, bytes=most))
    tracemalloc.start()
    life = Driven(config)
    began, sent = tracemalloc.get_traced_memory()[0], most // 500
    for number in range(sent):
        life.send(chunk_of(number, 1, env=f"{number:0{number % 300}}"))
    taken = tracemalloc.get_traced_memory()[0] - began
    tracemalloc.stop()
    stats = life.table.stats()
    assert stats.bytes <= most
    assert stats.items + stats.removed["evicted"] == sent
    return taken


def test_learners_that_come_and_go_are_forgotten() -> None:
    """A name that was used once takes no memory for ever; one that has a lease stays."""
    life = Driven(memory())
    life.fill(1)
    assert life.lease(1, learner="keeps") is not None
    for number in range(2 * MOST_LEARNERS):
        life.lease(1, learner=f"l{number}")

    assert len(life.table._learners) == MOST_LEARNERS
    assert life.table.acknowledge("keeps", 1) == 1


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (ClearRequest(), []),
        (ClearRequest(env_id="b"), [0, 1, 4, 5]),
        (ClearRequest(before_timestamp=4 * SECOND), [3, 4, 5]),
        (ClearRequest(keep_last=2), [4, 5]),
        (ClearRequest(keep_last=9), [0, 1, 2, 3, 4, 5]),
        (ClearRequest(env_id="b", keep_last=2), [0, 1, 4, 5]),
        (ClearRequest(older_than=Version(lineage=1, number=3)), [3, 4, 5]),
        (ClearRequest(older_than=Version(lineage=2)), [5]),
        (ClearRequest(beyond=Version(lineage=1, number=3)), [0, 1, 2, 3, 5]),
    ],
)
def test_what_to_remove_is_named(which: ClearRequest, left: list[int]) -> None:
    """Environment, time, number, age and lineage; all conditions together; counted."""
    life = Driven(memory())
    for number in range(6):
        life.now = (number + 1) * SECOND
        version = (1, number) if number < 5 else (2, 0)
        life.send(chunk_of(number, env="aabbaa"[number], version=version))

    assert life.table.remove(which) == 6 - len(left)
    assert life.table.stats().removed == ({"cleared": 6 - len(left)} if len(left) < 6 else {})
    assert (numbers(life.lease(2 * len(left))) if left else []) == left
    life.check()


@pytest.mark.parametrize("remover", REMOVERS)
@pytest.mark.parametrize("calls", [1_500, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_sums_add_up_whatever_happens(remover: str, calls: int) -> None:
    """By random calls of three writers and two learners on a small table."""
    life = Driven(memory(items=60, remover=remover))
    player = Player(life, Random(5))  # noqa: S311 a test's own chance
    for _ in range(calls // 20):
        player.play(20)
        life.check()
    stats = life.table.stats()

    assert player.unflagged == []
    assert (stats.acknowledged or 0) > 20
    assert stats.redelivered > 20
    assert player.next > 300


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"selector": "uniform"}, "table 't': selector 'uniform' is not fifo"),
        ({"remover": "newest"}, "table 't': remover 'newest' is none of refuse, oldest"),
        ({"lease_s": 0.0}, "lease_s is 0.0, not above 0"),
        ({"rate": Rate(samples_per_insert=1.0)}, "a rate is for tables of steps"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    changes: dict[str, object], expected: str
) -> None:
    """With the table and what to change."""
    with pytest.raises(ValueError, match=expected):
        Sequences.check(replace(memory(), **changes))  # type: ignore[arg-type]

"""Tables of sequences: each chunk used once, whatever learners do; sums that always add up."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from overwatch_rl.replay import fold
from overwatch_rl.replay.base import Durability, Refused, Taken, Wait, Which, Writer
from overwatch_rl.replay.fold import State
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.orders import ORDERS
from overwatch_rl.replay.sequences import REMOVERS, Sequences
from tests.overwatch_rl.replay.sequencing import SECOND, Driven, Player, check, chunk_of, memory, numbers


def test_a_lease_has_as_few_of_the_oldest_chunks_as_are_enough() -> None:
    """Whole chunks in order; nothing where there are not enough steps."""
    life = Driven(memory())
    life.fill(5, steps=2)

    assert numbers(life.lease(3)) == [0, 1]
    assert numbers(life.lease(1, 1)) == [2]
    assert life.lease(5, 2) is None
    assert numbers(life.lease(4, 2)) == [3, 4]
    check(life.table.state)


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

    assert life.table.acknowledge("l", 2, life.now) == 2
    assert life.table.acknowledge("l", 2, life.now) == 0
    assert life.table.acknowledge("nobody", 2, life.now) == 0
    account = life.table.state.account
    assert (account.acknowledged.items, account.leased.items, account.queued.items) == (2, 1, 1)
    check(life.table.state)


def test_a_learner_that_resumes_gets_what_its_checkpoint_lacks() -> None:
    """Leases up to the cursor are used, later ones void: their chunks come again first, flagged."""
    life = Driven(memory())
    life.fill(5)
    for after in range(4):
        life.lease(2, after)
    resumed = life.table.resume("l", 2, life.now)

    assert (resumed.acknowledged, resumed.redelivered, resumed.gap) == (2, 2, 0)
    assert resumed.next_number == 5
    assert not resumed.is_unknown
    lease = life.lease(6, 4)
    assert lease is not None
    assert lease.number == 5
    assert numbers(lease) == [2, 3, 4]
    assert [item.is_redelivered for item in lease.items] == [True, True, False]
    check(life.table.state)


def test_a_gap_is_counted() -> None:
    """A checkpoint older than the last acknowledgement lacks chunks that are gone."""
    life = Driven(memory())
    life.fill(5)
    for after in range(4):
        life.lease(2, after)
    life.table.acknowledge("l", 3, life.now)

    assert life.table.resume("l", 1, life.now).gap == 2
    unknown = life.table.resume("l", 17, life.now)
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
    check(life.table.state)


def test_an_acknowledgement_that_is_late_counts_while_nobody_else_has_the_chunks() -> None:
    """What is still queued is used; what went to another lease meanwhile is counted as late."""
    life = Driven(memory())
    life.fill(3)
    life.lease(4)
    life.now += 61 * SECOND
    life.table.expire(life.now)
    other = life.lease(2, learner="m")

    assert numbers(other) == [0]
    assert life.table.acknowledge("l", 1, life.now) == 1
    assert life.table.stats().late == {"ack": 1}
    assert numbers(life.lease(2, 1)) == [2]
    check(life.table.state)


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
    assert life.table.acknowledge("l", 2, life.now) == 1
    assert life.table.stats().queued == 2


def test_a_repeated_request_is_taken_once() -> None:
    """By its writer and number; another life of the writer is another writer."""
    life = Driven(memory())
    for writer, number, is_repeat in [("a", 1, False), ("a", 1, True), ("a", 2, False), ("b", 1, False)]:
        taken = life.send(chunk_of(0), writer=Writer(id=writer, number=number))
        assert isinstance(taken, Taken)
        assert taken.is_repeat == is_repeat

    assert life.table.stats().items == 3


def test_a_full_table_takes_nothing_and_drops_nothing() -> None:
    """Leased chunks count; an acknowledgement makes room. What can never fit is refused."""
    life = Driven(memory(items=3))
    life.fill(3)
    life.lease(2)

    assert life.send(chunk_of(9)) == Wait(reason="full")
    life.table.acknowledge("l", 1, life.now)
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
    life.table.acknowledge("l", 1, life.now)
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
    check(life.table.state)


def test_trajectories_are_leased_whole() -> None:
    """In the order of their ends; an open one waits."""
    life = Driven(memory("trajectories"))
    life.send(chunk_of(0, env="a", place=(0, 0)), chunk_of(1, env="b", place=(0, 0)))
    life.send(chunk_of(2, env="b", place=(0, 2), end="terminated"))
    assert life.lease(5) is None
    life.send(chunk_of(3, env="a", place=(0, 2), end="truncated"), chunk_of(4, env="a", place=(1, 0)))

    assert numbers(life.lease(1)) == [1, 2]
    assert numbers(life.lease(1, 1)) == [0, 3]
    assert life.lease(1, 2) is None
    life.table.resume("l", 1, life.now)
    assert numbers(life.lease(1, 2)) == [0, 3]
    check(life.table.state)


def test_an_episode_with_a_gap_is_removed_by_name() -> None:
    """Its beginning or a chunk is missing, or its actor began anew: it will never be whole."""
    life = Driven(memory("trajectories"))
    life.send(chunk_of(0, place=(0, 4)))
    life.send(chunk_of(1, place=(1, 0)), chunk_of(2, place=(1, 6)))
    life.send(chunk_of(3, place=(2, 0)))
    life.send(chunk_of(4, place=(2, 0)))
    life.send(chunk_of(5, place=(2, 2), end="terminated"))

    assert life.table.stats().removed == {"incomplete": 4}
    assert numbers(life.lease(1)) == [4, 5]
    check(life.table.state)


def test_a_table_full_of_open_episodes_states_it() -> None:
    """Waiting would not help: nothing can be leased."""
    life = Driven(memory("trajectories", items=2))
    life.send(chunk_of(0, env="a"), chunk_of(1, env="b"))
    refused = life.send(chunk_of(2, env="c"))

    assert isinstance(refused, Refused)
    assert refused.message == "table 't' is full of episodes that have not ended: raise its capacity"


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (Which(), []),
        (Which(env="b"), [0, 1, 4, 5]),
        (Which(before=4 * SECOND), [3, 4, 5]),
        (Which(keep_last=2), [4, 5]),
        (Which(env="b", keep_last=2), [0, 1, 4, 5]),
        (Which(reason="stale", older_than=(1, 3)), [3, 4, 5]),
        (Which(reason="stale", older_than=(2, 0)), [5]),
        (Which(reason="abandoned", beyond=(1, 3)), [0, 1, 2, 3, 5]),
    ],
)
def test_what_to_remove_is_named(which: Which, left: list[int]) -> None:
    """Environment, time, number, age and lineage; all conditions together; counted by the reason."""
    life = Driven(memory())
    for number in range(6):
        life.now = (number + 1) * SECOND
        version = (1, number) if number < 5 else (2, 0)
        life.send(chunk_of(number, env="aabbaa"[number], version=version))

    assert life.table.remove(which, life.now) == 6 - len(left)
    assert life.table.stats().removed == ({which.reason: 6 - len(left)} if len(left) < 6 else {})
    assert (numbers(life.lease(2 * len(left))) if left else []) == left
    check(life.table.state)


def played(life: Driven, seed: int, steps: int) -> Player:
    """So many calls at random, with the sums looked at after each few."""
    player = Player(life, Random(seed))  # noqa: S311 a test's own chance
    for _ in range(steps // 20):
        player.play(20)
        check(life.table.state)
    assert player.unflagged == []
    return player


@pytest.mark.parametrize("selector", ORDERS)
@pytest.mark.parametrize("remover", REMOVERS)
def test_the_sums_add_up_whatever_happens(selector: str, remover: str) -> None:
    """Every selector and remover, by random calls of three writers and two learners on a small table."""
    life = Driven(memory(selector, items=60, remover=remover))
    player = played(life, 5, 1_500)
    account = life.table.state.account

    assert account.acknowledged.items > 20
    assert account.redelivered > 20
    assert player.next > 300
    saved = fold.snapshot(life.table.state, 0)
    other = State(selector=selector)
    fold.apply(other, saved)
    check(other)
    assert fold.snapshot(other, 0) == saved
    assert list(other.queue.units) == list(life.table.state.queue.units)


@pytest.mark.long
@pytest.mark.parametrize("selector", ORDERS)
@pytest.mark.parametrize("remover", REMOVERS)
def test_the_sums_add_up_for_long(selector: str, remover: str) -> None:
    """The same over 1e5 calls."""
    played(Driven(memory(selector, items=60, remover=remover)), 6, 100_000)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"selector": "uniform"}, "table 't': selector 'uniform' is none of fifo, trajectories"),
        ({"remover": "newest"}, "table 't': remover 'newest' is none of refuse, oldest"),
        ({"durability": Durability.FAST}, "table 't': the level fast needs a folder"),
        (
            {"durability": Durability.FAST, "folder": Path("x"), "selector": "trajectories"},
            "is fifo and refuses",
        ),
        ({"durability": Durability.FSYNC, "folder": Path("x"), "remover": "oldest"}, "is fifo and refuses"),
        ({"folder": Path("x")}, "the level memory has no folder"),
        ({"lease_s": 0.0}, "lease_s is 0.0, not above 0"),
        ({"rate": Rate(samples_per_insert=1.0)}, "a rate is for tables of steps"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    changes: dict[str, object], expected: str
) -> None:
    """With the table and what to change."""
    with pytest.raises(ValueError, match=expected):
        Sequences(replace(memory(), **changes))  # type: ignore[arg-type]

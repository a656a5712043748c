"""Which groups make a batch: exact sizes, oldest first, fair, and never waiting for what never comes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch_rl.rollouts import assembly, queue
from overwatch_rl.rollouts.shares import bounded_sums
from overwatch_rl.rollouts.wire import PolicyVersion
from tests.overwatch_rl.rollouts.driven import Batch, Driven, NoBatch, by_env, ids


def test_the_oldest_groups_go_first() -> None:
    """One environment's groups are served in the order in which they came."""
    driven = Driven()
    driven.trainer(8)
    sent = driven.send(driven.env(), 4)

    assert ids(driven.trained()) == sent[:2]
    assert ids(driven.trained()) == sent[2:]


def test_groups_of_different_sizes_are_packed_exactly() -> None:
    """Sizes 3 and 4 make 16 as one four and four threes, with no group left that could have gone."""
    driven = Driven()
    driven.trainer(16)
    four, three = driven.env(4), driven.env(3)
    driven.send(three, 4, size=3)
    driven.send(four, 1, size=4)

    assert by_env(driven.trained()) == {three: 12, four: 4}


def test_a_group_that_does_not_fit_yet_blocks_no_other() -> None:
    """A single group of 3 at the head of its environment lets younger groups of 4 pass."""
    driven = Driven()
    driven.trainer(16)
    env = driven.env(4)
    driven.send(env, 1, size=3)
    fours = driven.send(env, 4)

    assert ids(driven.trained()) == fours
    assert driven.state.account.queued.groups == 1


def test_too_few_and_unfitting_groups_are_distinguished() -> None:
    """What lacks is named: so many of so many sequences, or sizes that do not add up."""
    driven = Driven()
    driven.trainer(16)
    four, three = driven.env(4), driven.env(3)
    driven.send(four, 1)
    few = driven.batch()
    driven.send(three, 5, size=3)
    driven.send(four, 0)
    driven.trained()
    driven.send(three, 6, size=3)
    unfitting = driven.batch()

    assert isinstance(few, NoBatch)
    assert (few.lack, few.reason) == ("few", "4 of 16 sequences are queued")
    assert isinstance(unfitting, NoBatch)
    assert (unfitting.lack, unfitting.reason) == (
        "unreachable",
        "21 sequences are queued, but groups of 3 do not add up to 16",
    )


def test_a_minimum_is_kept_in_each_batch_and_delays_no_other() -> None:
    """A quarter of each batch while there are groups; an empty environment's half is given away."""
    driven = Driven()
    driven.trainer(16)
    reserved, empty, heavy = driven.env(minimum=0.25), driven.env(minimum=0.5), driven.env(weight=100)
    driven.send(heavy, 40)
    driven.send(reserved, 3)

    batches = [by_env(driven.trained()) for _ in range(4)]

    assert [found[reserved] for found in batches] == [4, 4, 4, 0]
    assert all(found[empty] == 0 for found in batches)


def test_idle_time_earns_nothing() -> None:
    """An environment that comes back after a hundred batches shares from now on, and does not catch up."""
    driven = Driven()
    driven.trainer(8)
    idle, busy = driven.env(), driven.env()
    driven.send(idle)
    for _ in range(100):
        driven.send(busy, 2)
        driven.trained()
    driven.send(idle, 20)
    driven.send(busy, 20)

    served = sum((by_env(driven.trained()) for _ in range(10)), Counter[int]())

    assert abs(served[idle] - served[busy]) <= 8


def test_a_batch_waits_for_a_running_group_that_no_later_one_may_have() -> None:
    """With staleness 0 a slow group is in the batch of its version, though others could fill it."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    slow, fast = driven.env(), driven.env()
    slow_ticket = driven.tickets(slow).tickets[0]
    driven.send(fast, ticket=driven.tickets(fast).tickets[0])
    driven.send(fast, 2)

    waiting = driven.batch()

    assert isinstance(waiting, NoBatch)
    assert waiting.lack == "running"
    driven.send(slow, ticket=slow_ticket)
    assert by_env(driven.trained())[slow] == 4


def test_a_ticket_that_expired_is_waited_for_no_more() -> None:
    """A handler that died with a ticket costs the time that a ticket lives, once."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    dead, alive = driven.env(), driven.env()
    driven.tickets(dead)
    driven.send(alive, ticket=driven.tickets(alive).tickets[0])
    assert driven.tickets(alive).tickets == []

    driven.wait(60)

    driven.send(alive, ticket=driven.tickets(alive).tickets[0])
    driven.trained()


def test_what_is_too_old_is_expired_and_an_assumed_version_never() -> None:
    """A stated version beyond the bound is counted as stale; what old clients sent is served at any age."""
    driven = Driven()
    driven.trainer(4, max_staleness=1)
    stated, assumed = driven.env(), driven.env()
    driven.send(stated, version=PolicyVersion(number=0))
    kept = driven.send(assumed)
    driven.states(2)

    answer = driven.trained()

    assert ids(answer) == kept
    assert answer.items[0].age == 2
    assert driven.state.account.expired["stale"].groups == 1


def test_a_group_of_a_version_that_the_resumed_line_does_not_descend_from_is_abandoned() -> None:
    """Lineage 1 resumed from 3: what 0.3 made is served, what 0.4 made is not."""
    driven = Driven()
    driven.trainer(4)
    env = driven.env()
    driven.states(4)
    ancestor = driven.send(env, version=PolicyVersion(number=3))
    driven.send(env, version=PolicyVersion(number=4))

    driven.states(5, lineage=1, resumed_from=3)

    assert ids(driven.trained()) == ancestor
    assert isinstance(driven.batch(), NoBatch)
    assert driven.state.account.expired["abandoned"].groups == 1


def test_what_a_former_lineage_left_is_served_before_it_is_too_old() -> None:
    """Lineage 1 resumed from 4: a ticket of 0.4 is waited for and its group goes first; one of 0.5 is not."""
    driven = Driven()
    driven.trainer(4, max_staleness=1)
    old, abandoned, new = driven.env(), driven.env(), driven.env()
    driven.states(4)
    kept = driven.tickets(old).tickets[0]
    driven.states(5)
    driven.tickets(abandoned)
    driven.states(5, lineage=1, resumed_from=4)
    driven.send(new, 2, version=PolicyVersion(lineage=1, number=5))

    waiting = driven.batch()
    driven.send(old, ticket=kept)

    assert isinstance(waiting, NoBatch)
    assert waiting.lack == "running"
    assert by_env(driven.trained()) == {old: 4}
    assert by_env(driven.trained()) == {new: 4}


def test_the_oldest_version_goes_first_however_late_it_came() -> None:
    """Inside an environment a slow group of an older version passes newer ones that came before it."""
    driven = Driven()
    driven.trainer(4)
    env = driven.env()
    driven.states(2)
    driven.send(env, version=PolicyVersion(number=2))
    old = driven.send(env, version=PolicyVersion(number=1))

    assert ids(driven.trained()) == old


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 2, 3, 4, 5, 7])), max_size=25),
    st.integers(3, 16),
)
def test_a_batch_is_there_exactly_when_sizes_add_up(groups: list[tuple[int, int]], batch: int) -> None:
    """Whatever lies there: a batch is served if and only if some groups add up to it."""
    driven = Driven()
    driven.trainer(batch)
    envs = [driven.env(size) for size in (1, 2, 3, 4, 5)]
    for env, size in groups:
        driven.send(envs[env], size=size)
    counts: dict[int, int] = {}
    for item in driven.state.items.values():
        counts[item.sequences] = counts.get(item.sequences, 0) + 1

    answer = driven.batch()

    assert isinstance(answer, Batch) == bool(bounded_sums(counts, batch) >> batch & 1)
    if isinstance(answer, Batch):
        assert sum(item.sequences for item in answer.items) == batch


def test_a_trainer_that_takes_any_age_has_its_batch_as_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What assembling costs goes with the versions that are queued, not with the age that is allowed."""
    looked: list[object] = []
    known = assembly.Packing.take
    monkeypatch.setattr(assembly.Packing, "take", lambda *given: looked.append(given) or known(*given))
    driven = Driven()
    driven.trainer(8, max_staleness=10**12)
    env = driven.env()
    for number in range(1, 4):
        driven.send(env, 2, version=PolicyVersion(number=0))
        driven.states(number)

    assert len(ids(driven.trained())) == 2
    assert len(looked) < 10


def test_a_status_of_an_unstarted_queue_is_empty() -> None:
    """Nothing is invented before a trainer comes."""
    status = queue.status(Driven().state, 0)

    assert (status.current_step, status.permits, status.queue_size, status.done) == (0, 0, 0, False)

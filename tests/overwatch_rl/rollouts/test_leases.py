"""Batches go out by lease: used once, or delivered again and marked."""

from collections.abc import Callable

import pytest

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.wire import Lease, VersionMove
from overwatch_rl.web.faults import RefusedError
from tests.overwatch_rl.rollouts.driven import Batch, Driven, NoBatch, ids, registration


@pytest.fixture
def driven() -> Driven:
    """A trainer of batches of 8, an environment and four batches of groups."""
    driven = Driven()
    driven.trainer(8)
    driven.send(driven.env(), 8)
    return driven


def lease_of(answer: Batch | NoBatch) -> int:
    """The lease of a batch that is there."""
    assert isinstance(answer, Batch), answer
    return answer.lease


def redelivered(answer: Batch | NoBatch) -> list[bool]:
    """Which groups of a batch are marked as delivered before."""
    assert isinstance(answer, Batch), answer
    return [item.is_redelivered for item in answer.items]


def test_an_explicit_lease_is_used_once_it_is_acknowledged(driven: Driven) -> None:
    """The step counts it while it is out; acknowledged again, the answer is the same."""
    lease = lease_of(driven.batch())
    assert driven.state.step == 1
    assert driven.state.account.acknowledged.groups == 0

    for _ in range(2):
        answer = driven.do(queue.acknowledge(driven.state, lease, driven.now))
        assert answer == Lease(id=lease, expires_in_s=None, ended="acknowledged")

    assert driven.state.account.acknowledged.groups == 2
    assert driven.state.step == 1
    assert driven.state.version.number == 1


@pytest.mark.parametrize("how", ["release", "broken", "expired"])
def test_groups_that_come_back_are_next_and_marked(driven: Driven, how: str) -> None:
    """Given back, cut off or forgotten: the same groups come again before newer ones, and are marked."""
    first = driven.batch()
    if how == "expired":
        driven.wait(121)
    else:
        driven.do(getattr(queue, how)(driven.state, lease_of(first), driven.now))

    again = driven.batch()

    assert ids(again) == ids(first)
    assert redelivered(again) == [True, True]
    assert redelivered(driven.batch()) == [False, False]
    assert driven.state.account.redelivered == 2


def test_an_acknowledgement_after_the_deadline_answers_that_the_groups_are_queued_again(
    driven: Driven,
) -> None:
    """Nothing is counted as used twice."""
    lease = lease_of(driven.batch())
    driven.wait(121)

    answer = driven.do(queue.acknowledge(driven.state, lease, driven.now))

    assert answer == Lease(id=lease, expires_in_s=None, ended="expired")
    assert driven.state.account.acknowledged.groups == 0


def test_a_lease_lives_as_long_as_it_is_extended(driven: Driven) -> None:
    """Extended to ten minutes it is there after five."""
    lease = lease_of(driven.batch())

    answer = driven.do(queue.extend(driven.state, lease, 600, driven.now))

    assert answer == Lease(id=lease, expires_in_s=600.0, ended=None)
    driven.wait(300)
    assert lease in driven.state.leases


def test_the_next_request_of_an_old_client_acknowledges_what_was_written_whole(driven: Driven) -> None:
    """Old clients never acknowledge: to ask again is to have used the last batch."""
    first = driven.batch(is_explicit=False)
    driven.do(queue.delivered(driven.state, lease_of(first), driven.now))

    second = driven.batch(is_explicit=False)

    assert not set(ids(first)) & set(ids(second))
    assert driven.state.account.acknowledged.groups == 2
    assert driven.state.version.number == 1


def test_an_old_client_whose_reply_was_cut_off_gets_the_same_groups_again(driven: Driven) -> None:
    """A reply that was never written whole was not used."""
    first = driven.batch(is_explicit=False)

    again = driven.batch(is_explicit=False)

    assert ids(again) == ids(first)
    assert redelivered(again) == [True, True]
    assert driven.state.account.acknowledged.groups == 0


def test_an_old_clients_last_batch_counts_as_used_after_ten_minutes(driven: Driven) -> None:
    """A trainer that ends after its last batch leaves no lease for ever."""
    lease = lease_of(driven.batch(is_explicit=False))
    driven.do(queue.delivered(driven.state, lease, driven.now))
    driven.wait(599)
    assert lease in driven.state.leases

    driven.wait(1)

    assert driven.state.ended[lease] == "acknowledged"


def test_a_trainer_that_registers_again_gets_its_last_batch_again(driven: Driven) -> None:
    """What its former life had got and may not have used is delivered again, even if it was written whole."""
    first = driven.batch(is_explicit=False)
    driven.do(queue.delivered(driven.state, lease_of(first), driven.now))

    driven.do(queue.register_trainer(driven.state, registration(), driven.now))

    again = driven.batch(is_explicit=False)
    assert ids(again) == ids(first)
    assert redelivered(again) == [True, True]


def test_explicit_leases_are_not_touched_by_an_old_client_or_a_registration(driven: Driven) -> None:
    """Only their holder or time ends them."""
    lease = lease_of(driven.batch())

    driven.batch(is_explicit=False)
    driven.do(queue.register_trainer(driven.state, registration(), driven.now))

    assert lease in driven.state.leases


def test_after_a_restart_leases_have_time_and_cut_replies_come_back(driven: Driven) -> None:
    """An explicit lease whose deadline passed meanwhile can still be acknowledged."""
    explicit, cut = lease_of(driven.batch()), lease_of(driven.batch(is_explicit=False))
    driven.now += 1_000 * 10**9

    queue.restarted(driven.state, driven.now)
    driven.wait(10)

    assert driven.state.ended == {cut: "broken"}
    answer = driven.do(queue.acknowledge(driven.state, explicit, driven.now))
    assert answer == Lease(id=explicit, expires_in_s=None, ended="acknowledged")
    assert [env.presence for env in driven.state.envs.values()] == ["present"]


@pytest.mark.parametrize("decide", [queue.acknowledge, queue.release, queue.broken, queue.delivered])
def test_an_unknown_lease_is_named(driven: Driven, decide: Callable[[State, int, int], Lease]) -> None:
    """Every call of a lease names the one it does not know."""
    with pytest.raises(RefusedError, match="lease 99 is not known; ask GET /batch for another"):
        decide(driven.state, 99, driven.now)


def test_a_version_never_falls_within_a_lineage(driven: Driven) -> None:
    """The answer names both versions and how a trainer that resumes goes on."""
    driven.states(5)

    with pytest.raises(RefusedError, match=r"0.4 is older than 0.5; a trainer that resumes begins lineage 1"):
        queue.move_version(driven.state, VersionMove(number=4), driven.now)

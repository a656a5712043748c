"""Who may generate, what is accepted, and that refusing comes last."""

import pytest

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import ANONYMOUS, Limits, Offer, Outcome, Source
from overwatch_rl.rollouts.wire import Full, PolicyVersion
from overwatch_rl.web.faults import Fault, RefusedError
from tests.overwatch_rl.rollouts.driven import Driven, by_env


def outcomes(driven: Driven, offers: list[Offer]) -> tuple[Outcome, ...]:
    """What became of each offer."""
    return driven.do(queue.accept(driven.state, offers, driven.now))


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_permits_are_what_will_be_served_before_it_is_too_old(staleness: int) -> None:
    """(max_staleness + version + 1) x batch, less what was accepted and what runs; more with each batch."""
    driven = Driven()
    driven.trainer(8, max_staleness=staleness)
    env = driven.env()

    first = driven.tickets(env, 100)

    assert len(first.tickets) == 2 * (staleness + 1)
    for ticket in first.tickets:
        driven.send(env, ticket=ticket)
    assert driven.tickets(env, 100).tickets == []
    driven.trained()
    assert len(driven.tickets(env, 100).tickets) == 2


def test_permits_survive_expiry_and_a_trainer_that_resumes_at_another_number() -> None:
    """Groups that expired took no batch; a resumed trainer's lower count does not close admission."""
    driven = Driven()
    driven.trainer(8, max_staleness=1)
    env = driven.env()
    driven.states(10)
    driven.send(env, 2, version=PolicyVersion(number=9))
    driven.states(12)
    driven.batch()
    assert driven.state.account.expired["stale"].groups == 2
    assert queue.status(driven.state, driven.now).permits == 16

    driven.states(3, lineage=1, resumed_from=2)

    assert queue.status(driven.state, driven.now).permits == 16


@pytest.mark.parametrize("is_first", ["version", "acknowledgement"])
def test_tickets_after_a_batch_have_the_new_version(is_first: str) -> None:
    """Whether the trainer states its version before or after it acknowledges, no ticket is of the old one."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    env = driven.env()
    if is_first == "acknowledgement":
        driven.states(0)
    for number in range(1, 5):
        found = driven.tickets(env, 10)
        assert (len(found.tickets), found.version.number) == (2, number - 1)
        for ticket in found.tickets:
            driven.send(env, ticket=ticket)
        answer = driven.batch()
        if is_first == "version":
            driven.states(number)
            assert driven.tickets(env, 10).tickets == []
        driven.do(queue.acknowledge(driven.state, answer.lease, driven.now))  # type: ignore[union-attr]
        if is_first == "acknowledgement":
            assert driven.tickets(env, 10).tickets == []
            driven.states(number)


def test_a_trainer_that_goes_on_with_its_version_does_not_starve() -> None:
    """One that asks for another batch without a new version trains several on one, and gets them."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    env = driven.env()
    driven.states(0)
    for _ in range(3):
        for ticket in driven.tickets(env, 10).tickets:
            driven.send(env, ticket=ticket)
        driven.trained()
        driven.batch()


def test_tickets_end_with_the_last_step() -> None:
    """No more than the steps that are left need is permitted, and then all is done."""
    driven = Driven()
    driven.trainer(8, num_steps=2)
    env = driven.env()

    found = driven.tickets(env, 100)

    assert len(found.tickets) == 4
    for ticket in found.tickets:
        driven.send(env, ticket=ticket)
    driven.trained()
    assert not driven.tickets(env).done
    driven.batch()
    last = driven.tickets(env)
    assert (last.tickets, last.done) == ([], True)


def test_permits_go_to_the_environment_served_least_while_it_waits() -> None:
    """The greedy one asks first and often; the other, which waits, gets its half."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    greedy, modest = driven.env(), driven.env()
    produced = []
    for _ in range(20):
        for env in (greedy, greedy, modest, greedy, modest):
            for ticket in driven.tickets(env, 10 if env == greedy else 1).tickets:
                driven.send(env, ticket=ticket)
        produced.append(by_env(driven.trained()))

    assert sum(found[modest] for found in produced[2:]) == pytest.approx(18 * 4, rel=0.05)


def test_who_stopped_waiting_holds_no_permits() -> None:
    """An environment that asked in vain and went is forgotten after two retries."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    gone, other = driven.env(), driven.env()
    for ticket in driven.tickets(other, 10).tickets:
        driven.send(other, ticket=ticket)
    assert driven.tickets(gone, 10).tickets == []
    driven.trained()
    assert driven.tickets(other, 10).tickets == []

    driven.wait(2)

    assert len(driven.tickets(other, 10).tickets) == 2


def test_tickets_of_different_sizes_always_complete_a_batch() -> None:
    """Groups of 3 and 4 for 16: whatever order they ask in, what is issued adds up to the batch."""
    for order in range(32):
        driven = Driven()
        driven.trainer(16, max_staleness=0)
        envs = {driven.env(4): 4, driven.env(3): 3}
        for turn in range(40):
            env = (order >> turn % 5) & 1
            for ticket in driven.tickets(env).tickets:
                driven.send(env, size=envs[env], ticket=ticket)
            driven.wait(1)
        for env, size in envs.items():
            for ticket in driven.tickets(env, 10).tickets:
                driven.send(env, size=size, ticket=ticket)

        driven.trained()


def test_what_is_stuck_gets_groups_that_free_it() -> None:
    """Unannounced sizes filled the queue and fit no batch: more is permitted until they do."""
    driven = Driven()
    driven.trainer(8, max_staleness=0)
    three, five = driven.env(3), driven.env(5)
    driven.send(three, 3, size=3)

    found = driven.tickets(five)

    assert len(found.tickets) == 1
    driven.send(five, size=5, ticket=found.tickets[0])
    assert by_env(driven.trained()) == {three: 3, five: 5}


def test_refusals_are_counted_by_environment_reason_and_length() -> None:
    """Stale, too large, unreachable and invalid groups are refused one by one; the good one is queued."""
    driven = Driven()
    driven.trainer(8, max_staleness=1)
    env = driven.env()
    driven.states(5)

    found = outcomes(
        driven,
        [
            Offer(env_id=env, sequences=4, tokens=40, version=PolicyVersion(number=3)),
            Offer(env_id=env, sequences=9, tokens=90),
            Offer(env_id=env, sequences=4, tokens=40),
            Offer(env_id=env, sequences=3, tokens=30),
            Offer(env_id=env, sequences=4, tokens=7, fault=Fault("", "wrong")),
        ],
    )

    assert [outcome.reason for outcome in found] == ["stale", "too_large", None, "unreachable", "invalid"]
    refused = driven.state.envs[env].account.refused
    assert {reason: amount.sequences for reason, amount in refused.items()} == {
        "stale": 4, "too_large": 9, "unreachable": 3, "invalid": 4,
    }  # fmt: skip
    assert driven.state.account.queued.groups == 1


def test_a_group_with_a_ticket_has_its_version() -> None:
    """A ticket's version counts as stated; a stated one counts more; without either it is assumed."""
    driven = Driven()
    driven.trainer(8)
    env = driven.env()
    driven.states(2)
    tickets = driven.tickets(env, 2).tickets
    driven.states(3)
    found = [
        *driven.send(env, ticket=tickets[0]),
        *driven.send(env, ticket=tickets[1], version=PolicyVersion(number=3)),
        *driven.send(env),
    ]

    items = [driven.state.items[item] for item in found]
    assert [(item.version.number, item.version_source) for item in items] == [
        (2, "stated"),
        (3, "stated"),
        (2, "assumed"),
    ]
    driven.do(queue.status_env(driven.state, env, driven.now))
    assert driven.state.items[driven.send(env)[0]].version.number == 3


def test_a_late_group_is_accepted_and_counted() -> None:
    """A ticket's time is what others wait for, not what its group is worth."""
    driven = Driven()
    driven.trainer(8)
    env = driven.env()
    ticket = driven.tickets(env).tickets[0]
    driven.wait(61)
    assert driven.state.running == 0

    assert driven.send(env, ticket=ticket) != []

    assert driven.state.envs[env].account.late == 1


def test_a_full_queue_takes_nothing_but_what_has_a_ticket() -> None:
    """The answer has the size of the queue and when to try again; a permitted group is not turned away."""
    driven = Driven(Limits(max_queued_batches=2, max_staleness=3))
    driven.trainer(8)
    env, other = driven.env(), driven.env()
    ticket = driven.tickets(other).tickets[0]
    driven.send(env, 4)

    with pytest.raises(RefusedError, match="the queue has 4 groups; send this again in 1 s") as caught:
        queue.accept(driven.state, [Offer(env_id=env, sequences=4, tokens=1)], driven.now)

    assert isinstance(caught.value.body, Full)
    assert (caught.value.body.queue_size, caught.value.body.queued_sequences) == (4, 16)
    assert driven.send(other, ticket=ticket) != []


def test_a_repeated_key_is_answered_as_the_first_time() -> None:
    """The same request again queues nothing; another body under its key is refused."""
    driven = Driven()
    driven.trainer(8)
    env = driven.env()
    offers = [Offer(env_id=env, sequences=size, tokens=1) for size in (4, 9, 4)]
    first = driven.do(queue.accept(driven.state, offers, driven.now, Source("k", "first")))

    assert driven.do(queue.accept(driven.state, offers, driven.now, Source("k", "first"))) == first
    with pytest.raises(RefusedError, match="'k' came before with another body"):
        queue.accept(driven.state, offers, driven.now, Source("k", "other"))
    assert [outcome.reason for outcome in first] == [None, "too_large", None]
    assert driven.state.account.accepted.groups == 2
    assert driven.state.account.refused["too_large"].groups == 1


def test_a_key_is_remembered_for_an_hour() -> None:
    """After the retention the same key is a new request."""
    driven = Driven()
    driven.trainer(8)
    env = driven.env()
    first = driven.send(env, key="k")
    driven.wait(3_500)
    assert driven.send(env, key="k") == first

    driven.wait(200)
    driven.send(env, key="other")

    assert driven.send(env, key="k") != first


def test_groups_without_an_environment_have_one_of_their_own() -> None:
    """The old wire allows them: they share like an environment that weighs 1."""
    driven = Driven()
    driven.trainer(8)

    assert len(driven.send(ANONYMOUS, 2)) == 2

    assert by_env(driven.trained()) == {ANONYMOUS: 8}
    assert driven.env() == 0


def test_an_unknown_environment_is_not_accepted() -> None:
    """Nothing is queued under an id that nobody registered."""
    driven = Driven()
    driven.trainer(8)

    with pytest.raises(RefusedError, match="env_id 7 is not registered here; POST /register-env again"):
        queue.accept(driven.state, [Offer(env_id=7, sequences=4, tokens=1)], driven.now)

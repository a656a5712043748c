"""Whole runs under a clock that the test moves: shares, slow groups, the synchronous run."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from overwatch_rl.rollouts import queue
from tests.overwatch_rl.rollouts.driven import Batch, Driven, by_env


def test_fifty_handlers_have_their_shares_over_a_hundred_batches() -> None:
    """One dead, one empty with a minimum, one with groups of 3 beside 4, weights 1 to 3: within 5 %."""
    driven = Driven()
    driven.trainer(256)
    sizes = {
        driven.env(3 if number == 2 else 4, weight=1 + number % 3): 3 if number == 2 else 4
        for number in range(49)
    }
    empty = driven.env(4, minimum=0.2)
    dead, living = 0, [env for env in sizes if env != 0]
    driven.send(dead, 3)
    served, leftover = Counter[int](), 0
    for number in range(103):
        for env in living:
            while driven.state.envs[env].account.queued.sequences < 64:
                driven.send(env, 4, size=sizes[env])
        driven.do(queue.status_env(driven.state, empty, driven.now))
        driven.wait(30)
        found = by_env(driven.trained())
        leftover += found[dead]
        if number >= 3:
            served += found

    weights = {env: driven.state.envs[env].registered.weight for env in living}
    expected = {env: 25_600 * weight / sum(weights.values()) for env, weight in weights.items()}
    assert leftover == 12
    assert served[empty] == 0
    assert dead not in queue.shares(driven.state)
    for env in living:
        assert served[env] == pytest.approx(expected[env], rel=0.05)


@dataclass(slots=True)
class Handler:
    """Generates several groups at a time, each so many seconds long."""

    env: int
    seconds: float
    running: list[tuple[float, int]] = field(default_factory=list)


def played(handlers: list[Handler], driven: Driven, until: int) -> list[Batch]:
    """Handlers that ask, generate and send, and a trainer that takes a batch every two seconds."""
    batches: list[Batch] = []
    at = 0.0
    while len(batches) < until:
        driven.wait(0.5)
        at += 0.5
        for handler in handlers:
            for done in [found for found in handler.running if found[0] <= at]:
                handler.running.remove(done)
                driven.send(handler.env, ticket=done[1])
            free = 4 - len(handler.running)
            if free:
                tickets = driven.tickets(handler.env, free).tickets
                handler.running += [(at + handler.seconds, ticket) for ticket in tickets]
        if at % 2 == 0:
            answer = driven.batch()
            if isinstance(answer, Batch):
                driven.do(queue.acknowledge(driven.state, answer.lease, driven.now))
                batches.append(answer)
    return batches


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_slow_groups_are_served_as_they_are_produced(staleness: int) -> None:
    """Ten times longer: served within 2 % of their produced share, nothing discarded, no batch too old."""
    driven = Driven()
    driven.trainer(32, max_staleness=staleness)
    handlers = [Handler(env=driven.env(), seconds=10 if number < 2 else 1) for number in range(10)]
    slow = {handler.env for handler in handlers[:2]}

    batches = played(handlers, driven, 150)

    accounts = {env: found.account for env, found in driven.state.envs.items()}
    produced = Counter({env: account.accepted.sequences for env, account in accounts.items()})
    served = sum((by_env(batch) for batch in batches), Counter[int]())
    shares = [sum(of[env] for env in slow) / of.total() for of in (produced, served)]
    assert shares[0] > 0.05
    assert shares[1] == pytest.approx(shares[0], rel=0.02)
    assert all(item.age <= staleness for batch in batches for item in batch.items)
    assert driven.state.account.expired == {}
    assert driven.state.account.refused == {}


def labels(driven: Driven, envs: list[int], *, concurrent: bool, seed: int) -> list[list[tuple[int, int]]]:
    """Which groups make each batch, by environment and its count, one by one or in any order."""
    order = random.Random(seed)  # noqa: S311
    made, named = Counter[int](), {}
    batches = []
    for _ in range(30):
        running: deque[tuple[int, int]] = deque()
        for env in envs:
            for ticket in driven.tickets(env, 2).tickets:
                named[ticket] = (env, made[env])
                made[env] += 1
                running.append((env, ticket))
        if concurrent:
            order.shuffle(running)
        items = {}
        while running:
            env, ticket = running.popleft()
            (item,) = driven.send(env, ticket=ticket)
            items[item] = named[ticket]
            if running and concurrent:
                assert not isinstance(driven.batch(), Batch)
        batches.append(sorted(items[found.id] for found in driven.trained().items))
    return batches


def test_no_staleness_is_the_synchronous_run() -> None:
    """With max_staleness 0 and tickets each batch has the very groups of the run that does one at a time."""
    runs = []
    for concurrent in (False, True):
        driven = Driven()
        driven.trainer(24, max_staleness=0)
        envs = [driven.env(weight=weight) for weight in (1, 1, 2, 3)]
        runs.append(labels(driven, envs, concurrent=concurrent, seed=7))

    assert runs[0] == runs[1]
    assert {len(batch) for batch in runs[0]} == {6}

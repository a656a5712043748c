"""No deadlock at the last step: every order of what trainer, handlers and time may do, in a small world.

One trainer that may die with a lease and come back, two handlers of which one may die with a ticket. From
every state that any order reaches, whoever is still alive finishes: the trainer has used all its batches, and
each living handler was answered that it may go.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import pytest

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.state import State
from tests.overwatch_rl.rollouts.driven import Batch, Driven, registration

STEPS = 2
WALKED = 60
"""States that are drawn; there are hundreds."""
LIMITS = Limits(max_staleness=0, lease_s=50, implicit_lease_s=600, ticket_s=60)


@dataclass(frozen=True)
class World:
    """The queue and what everybody knows of it."""

    state: State
    now: int = 0
    used: int = 0
    """Batches that the trainer has used."""
    lease: int | None = None
    deaths: int = 0
    lives: int = 1
    waits: int = 0
    tickets: tuple[int | None, ...] = (None, None)
    """What each handler generates on."""
    alive: tuple[bool, ...] = (True, True)
    left: tuple[bool, ...] = (False, False)


def opened(world: World) -> Driven:
    """A copy of a world's queue."""
    driven = Driven(LIMITS)
    driven.now = world.now
    driven.state = copy.deepcopy(world.state)
    return driven


def closed(world: World, driven: Driven, **changes: object) -> World:
    """A world after something was done to its queue."""
    return replace(world, state=driven.state, now=driven.now, **changes)  # type: ignore[arg-type]


def key(world: World) -> bytes:
    """What distinguishes two worlds: not which numbers its tickets and groups have, nor what time it is."""
    state = world.state
    ages = sorted((ticket.env_id, ticket.expires_at - world.now) for ticket in state.tickets.values())
    leases = [(lease.deadline - world.now, lease.is_delivered) for lease in state.leases.values()]
    queued = sorted((item.env_id, item.version.number, item.is_leased) for item in state.items.values())
    least = min(env.virtual for env in state.envs.values())
    envs = [(env.presence, world.now - env.seen, env.virtual - least) for env in state.envs.values()]
    waiting = sorted((found.env_id, found.until - world.now) for found in state.waiting.values())
    shown = (ages, leases, queued, envs, waiting, state.version, state.head.batches, state.trainer)
    held = [ticket and (ticket in state.tickets) for ticket in world.tickets]
    mine = (
        world.used,
        world.lease in state.leases,
        world.lease is None,
        world.deaths,
        world.lives,
        world.waits,
    )
    return msgspec.msgpack.encode((shown, mine, held, world.alive, world.left))


def begun() -> World:
    """A trainer that has asked once, two handlers of groups of half a batch."""
    driven = Driven(LIMITS)
    driven.trainer(2, num_steps=STEPS)
    driven.env(1)
    driven.env(1)
    return World(state=driven.state, now=driven.now)


def query(world: World, handler: int) -> World:
    """A handler asks for a ticket, or is answered that it may go."""
    driven = opened(world)
    found = driven.tickets(handler)
    tickets, left = list(world.tickets), list(world.left)
    tickets[handler] = found.tickets[0] if found.tickets else None
    left[handler] = found.done
    return closed(world, driven, tickets=tuple(tickets), left=tuple(left))


def send(world: World, handler: int) -> World:
    """A handler sends what it generated."""
    driven = opened(world)
    driven.send(handler, size=1, ticket=world.tickets[handler])
    tickets = list(world.tickets)
    tickets[handler] = None
    return closed(world, driven, tickets=tuple(tickets))


def die(world: World, handler: int) -> World:
    """A handler dies with whatever it had."""
    alive = list(world.alive)
    alive[handler] = False
    return replace(world, alive=tuple(alive), deaths=world.deaths + 1)


def train(world: World, *, is_explicit: bool) -> World:
    """The trainer asks for a batch, or has used the one that it has."""
    driven = opened(world)
    if world.lease is not None:
        used = True
        if is_explicit:
            answer = driven.do(queue.acknowledge(driven.state, world.lease, driven.now))
            used = getattr(answer, "ended", None) == "acknowledged"
        return closed(world, driven, lease=None, used=world.used + used)
    found = driven.batch(is_explicit=is_explicit)
    lease = found.lease if isinstance(found, Batch) else None
    if lease is not None and not is_explicit:
        driven.do(queue.delivered(driven.state, lease, driven.now))
    return closed(world, driven, lease=lease)


def crash(world: World) -> World:
    """The trainer dies and comes back, with what it had used."""
    driven = opened(world)
    trainer = registration(2, num_steps=STEPS, starting_step=world.used)
    driven.do(queue.register_trainer(driven.state, trainer, driven.now))
    return closed(world, driven, lease=None, lives=world.lives + 1)


def wait(world: World) -> World:
    """So long that tickets, leases and silent handlers end."""
    driven = opened(world)
    driven.wait(61)
    return closed(world, driven, waits=world.waits + 1)


def nexts(world: World, *, is_explicit: bool) -> Iterator[World]:
    """Whatever may happen next."""
    for handler in (0, 1):
        if world.alive[handler] and not world.left[handler]:
            yield (query if world.tickets[handler] is None else send)(world, handler)
            if world.deaths == 0:
                yield die(world, handler)
    if world.used < STEPS:
        yield train(world, is_explicit=is_explicit)
        if world.lives == 1:
            yield crash(world)
    if world.waits < 1:
        yield wait(world)


def finishes(world: World, *, is_explicit: bool) -> bool:
    """Whether everybody who lives ends when each does in turn what it always does."""
    for _ in range(12):
        for handler in (0, 1):
            if world.alive[handler] and not world.left[handler]:
                world = (query if world.tickets[handler] is None else send)(world, handler)
        if world.used < STEPS:
            world = train(world, is_explicit=is_explicit)
        handlers = zip(world.alive, world.left, strict=True)
        if world.used == STEPS and all(left or not alive for alive, left in handlers):
            return True
        driven = opened(world)
        driven.wait(20)
        world = closed(world, driven)
    return False


@pytest.mark.parametrize("is_explicit", [True, False])
def test_trainer_and_handlers_finish_from_states_on_the_way(*, is_explicit: bool) -> None:
    """Some orders, drawn anew each time: no state of theirs from which trainer or handlers wait for ever."""
    world = first = begun()
    for _ in range(WALKED):
        assert finishes(world, is_explicit=is_explicit), world
        world = random.choice(list(nexts(world, is_explicit=is_explicit)) or [first])  # noqa: S311 a test


@pytest.mark.long
@pytest.mark.parametrize("is_explicit", [True, False])
def test_trainer_and_handlers_finish_from_every_state(*, is_explicit: bool) -> None:
    """All orders, both kinds of lease: no state from which trainer or handlers wait for ever."""
    first = begun()
    seen, left = {key(first)}, [first]
    step = partial(nexts, is_explicit=is_explicit)
    while left:
        world = left.pop()
        assert finishes(world, is_explicit=is_explicit), world
        for found in step(world):
            name = key(found)
            if name not in seen:
                seen.add(name)
                left.append(found)

    assert len(seen) > 300

"""Peers take turns: who sends much waits for itself."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.collector.turns import Turns

Bodies = list[tuple[str, int, bool]]
"""Peer, size and whether threads decode it."""
MUCH = 64 << 10
"""Bytes of a body of somebody who sends much."""


def order_of(bodies: Bodies, cancelled: frozenset[int] = frozenset()) -> list[int]:
    """The places of bodies in the order in which they had their turn, all having come at once."""

    async def run() -> list[int]:
        turns, done = Turns(), list[int]()

        async def take(place: int, peer: str, size: int, heavy: bool) -> None:  # noqa: FBT001
            async with turns.turn(peer, size, heavy=heavy):
                done.append(place)
                if heavy:
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(take(place, *body)) for place, body in enumerate(bodies)]
        await asyncio.sleep(0)
        for place in cancelled:
            tasks[place].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        await asyncio.sleep(0)  # a turn ends with the loop's pass; of tasks that are done gather awaits none
        assert turns.is_free
        assert not turns._heavy.waiting
        return done

    return asyncio.run(run())


def test_who_asks_seldom_waits_for_the_body_that_is_taken_in_and_no_other() -> None:
    """Forty that came before it from each of two addresses do not go first."""
    floods: Bodies = [(peer, MUCH, False) for peer in ("one", "two") for _ in range(40)]
    assert order_of([*floods, ("good", 100, False)]).index(80) <= 2


def test_who_asks_again_as_soon_as_it_is_answered_has_no_more_than_others() -> None:
    """One body at a time does not overtake a flood for ever: bytes are shared alike."""

    async def run() -> list[str]:
        turns, done = Turns(), list[str]()

        async def take(peer: str) -> None:
            async with turns.turn(peer, MUCH, heavy=False):
                done.append(peer)

        async def again(peer: str) -> None:
            for _ in range(20):
                await take(peer)

        await asyncio.gather(*[take("flood") for _ in range(20)], again("again"))
        return done

    first = asyncio.run(run())[:20]
    assert 9 <= first.count("again") <= 11


def test_small_bodies_do_not_wait_for_one_that_threads_decode() -> None:
    """Nor for those that wait behind it, of the same peer or of others."""
    bodies: Bodies = [("flood", 1 << 22, True)] * 3 + [("good", 100, False)] * 2
    assert order_of(bodies)[:3] == [0, 3, 4]


def test_peers_get_bytes_alike_whatever_their_sizes() -> None:
    """Over a while a peer of large bodies has no more taken in than one of small ones."""
    large: Bodies = [("large", 4 * MUCH, False)] * 20
    small: Bodies = [("small", MUCH // 4, False)] * 200
    bodies = large + small
    taken = {"large": 0, "small": 0}
    for place in order_of(bodies)[:100]:
        peer, size, _ = bodies[place]
        taken[peer] += size
    assert 0.5 <= taken["large"] / taken["small"] <= 2


def test_a_peers_own_bodies_keep_their_order() -> None:
    """First come, first in."""
    assert order_of([("one", 10, False)] * 9) == list(range(9))


def test_who_sent_little_is_next_while_another_has_its_turn_and_who_sent_much_is_not() -> None:
    """Whoever has a body waiting, or owes bytes, is not next; what passes by is charged, and ends no turn."""

    async def run() -> list[bool]:
        turns = Turns()
        async with turns.turn("flood", MUCH, heavy=False):
            waiting = asyncio.create_task(turns.turn("flood", MUCH, heavy=False).__aenter__())
            await asyncio.sleep(0)
            told = [turns.is_next("good"), turns.is_next("flood")]
            turns.pass_by("good", 100)
            await asyncio.sleep(0)
            told += [turns.is_next("good"), waiting.done()]
        await waiting
        return [*told, turns.is_free]

    assert asyncio.run(run()) == [True, False, False, False, False]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1 << 20), st.booleans()), max_size=20),
    st.frozensets(st.integers(0, 19)),
)
def test_every_body_has_its_turn_and_clients_that_left_block_nobody(
    bodies: Bodies, left: frozenset[int]
) -> None:
    """Whatever comes and whoever leaves: all others are taken in, once."""
    gone = frozenset(place for place in left if place < len(bodies))
    done = order_of(bodies, gone)
    assert len(done) == len(set(done))
    assert set(range(len(bodies))) - gone <= set(done)


@pytest.mark.parametrize("heavy", [False, True])
def test_a_fault_while_a_body_is_taken_in_ends_its_turn(*, heavy: bool) -> None:
    """The next one's turn comes."""

    async def run() -> None:
        turns = Turns()
        with pytest.raises(ZeroDivisionError):
            async with turns.turn("one", 1, heavy=heavy):
                raise ZeroDivisionError
        async with asyncio.timeout(5), turns.turn("two", 1, heavy=heavy):
            pass

    asyncio.run(run())

"""Inflating under a limit: equal to gzip's own, never beyond."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.limits import Hold, Room
from overwatch.collector.receivers import bodies
from overwatch.collector.receivers.bodies import BadGzipError, Inflater, TooLargeError

LIMIT = 4096


def inflate(data: bytes, step: int, limit: int = LIMIT) -> bytes:
    """Feed in steps."""
    inflater = Inflater(limit)
    for at in range(0, len(data), step):
        inflater.feed(data[at : at + step])
    return inflater.finish()


@given(st.lists(st.binary(max_size=1000), min_size=1, max_size=4), st.integers(1, 64))
def test_members_in_any_steps_are_the_whole(parts: list[bytes], step: int) -> None:
    """Several members, cut anywhere, inflate to their concatenation."""
    packed = b"".join(gzip.compress(part) for part in parts)

    assert inflate(packed, step) == b"".join(parts)


@given(st.integers(0, 3 * LIMIT), st.integers(1, 5000))
def test_the_limit_is_exact(size: int, step: int) -> None:
    """Up to the limit everything comes, one byte beyond it nothing does."""
    packed = gzip.compress(bytes(size))
    if size <= LIMIT:
        assert inflate(packed, step) == bytes(size)
    else:
        with pytest.raises(TooLargeError, match=str(LIMIT)):
            inflate(packed, step)


@given(st.binary(max_size=500), st.data())
def test_a_body_that_is_cut_is_refused(plain: bytes, data: st.DataObject) -> None:
    """No prefix of a member passes for the whole."""
    packed = gzip.compress(plain)
    cut = data.draw(st.integers(0, len(packed) - 1))

    with pytest.raises(BadGzipError):
        inflate(packed[:cut], 7)


@given(st.binary(max_size=200))
def test_any_bytes_are_gzip_or_refused(data: bytes) -> None:
    """Whatever comes, it is inflated or refused; nothing else is raised."""
    try:
        plain = inflate(data, 16)
    except (BadGzipError, TooLargeError):
        return
    assert plain == gzip.decompress(data)


def test_bodies_that_grow_are_inflated_a_slice_at_a_time_between_two_looks_at_the_sockets() -> None:
    """Eight bodies of two MiB each hold up nobody for longer than it takes to inflate a slice."""
    packed, count, size = gzip.compress(bytes(2 << 20)), 8, 2 << 20
    room, steps = Room(1 << 30), list[int]()

    async def run() -> list[bytes]:
        slices = asyncio.Lock()

        async def chunks() -> AsyncIterator[bytes]:
            yield packed

        async def watch() -> None:
            while True:
                before = room.taken
                await asyncio.sleep(0)
                steps.append(room.taken - before)

        watching = asyncio.create_task(watch())
        made = await asyncio.gather(*[bodies.read(chunks(), size, Hold(room), slices) for _ in range(count)])
        watching.cancel()
        return made

    assert asyncio.run(run()) == [bytes(size)] * count
    assert room.taken == sum(steps) == count * size
    # What is free of waiting comes at once, of each body; the rest by slices.
    assert sorted(steps)[-2] <= bodies._STEP
    assert max(steps) <= count * bodies._FREE

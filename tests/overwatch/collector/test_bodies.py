"""Inflating under a limit: equal to gzip's own, never beyond."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.limits import Room
from overwatch.collector.receivers import bodies
from overwatch.deflate import BadGzipError, TooLargeError, inflated

LIMIT = 4096


@given(st.lists(st.binary(max_size=1000), min_size=1, max_size=4))
def test_members_are_the_whole(parts: list[bytes]) -> None:
    """Several members inflate to their concatenation."""
    packed = b"".join(gzip.compress(part) for part in parts)

    assert inflated(packed, LIMIT) == b"".join(parts)


@given(st.integers(0, 3 * LIMIT))
def test_the_limit_is_exact(size: int) -> None:
    """Up to the limit everything comes, one byte beyond it nothing does."""
    packed = gzip.compress(bytes(size))
    if size <= LIMIT:
        assert inflated(packed, LIMIT) == bytes(size)
    else:
        with pytest.raises(TooLargeError, match=str(LIMIT)):
            inflated(packed, LIMIT)


@given(st.binary(max_size=500), st.data())
def test_a_body_that_is_cut_is_refused(plain: bytes, data: st.DataObject) -> None:
    """No prefix of a member passes for the whole."""
    packed = gzip.compress(plain)
    cut = data.draw(st.integers(0, len(packed) - 1))

    with pytest.raises(BadGzipError):
        inflated(packed[:cut], LIMIT)


@given(st.binary(max_size=200))
def test_any_bytes_are_gzip_or_refused(data: bytes) -> None:
    """Whatever comes, it is inflated or refused; nothing else is raised."""
    try:
        plain = inflated(data, LIMIT)
    except (BadGzipError, TooLargeError):
        return
    assert plain == gzip.decompress(data)


def test_bodies_that_grow_are_inflated_beside_the_sockets() -> None:
    """Of eight bodies of two MiB each one at a time is inflated, in another thread; all is accounted for."""
    plain = random.Random(7).randbytes(1 << 20) * 2  # noqa: S311 of a test
    packed, count, room = gzip.compress(plain, 1), 8, Room(1 << 30)
    looks = 0

    async def run() -> list[bytes]:
        turn = asyncio.Lock()

        async def chunks() -> AsyncIterator[bytes]:
            yield packed

        async def watch() -> None:
            nonlocal looks
            while True:
                looks += turn.locked()
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        reading = [
            bodies.read(chunks(), 4 << 20, lambda more: room.take(more, ""), turn) for _ in range(count)
        ]
        made = await asyncio.gather(*reading)
        watching.cancel()
        return made

    assert asyncio.run(run()) == [plain] * count
    assert room.taken == count * (len(packed) + len(plain))
    # The loop went on while bodies were inflated.
    assert looks > count

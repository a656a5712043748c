"""Bodies: what comes in inflates within its limit, in bounded pieces, beside the loop."""

import asyncio
import gzip
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.deflate import Inflater
from overwatch_rl.web.bodies import Intake
from overwatch_rl.web.faults import RefusedError

LIMIT = 1 << 16


def received(
    data: bytes, encoding: str = "", step: int = 7, room: Callable[[int], bool] = lambda _: True
) -> bytes:
    """A body that comes in pieces of `step` bytes."""
    pieces = [data[at : at + step] for at in range(0, len(data), step)] or [b""]

    async def receive() -> Any:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def read() -> bytes:
        scope: Any = {"headers": [(b"content-encoding", encoding.encode())]}
        async with Intake(60.0, room).body(scope, receive, LIMIT) as body:
            return body

    return asyncio.run(read())


def status(data: bytes, encoding: str, **how: Any) -> int:
    """What a body is refused with."""
    with pytest.raises(RefusedError) as error:
        received(data, encoding, **how)
    return error.value.status


@given(data=st.binary(max_size=400), step=st.integers(1, 50), split=st.integers(0, 400))
def test_gzip_comes_out_as_it_went_in(data: bytes, step: int, split: int) -> None:
    """In any pieces, as one member or as two."""
    two = gzip.compress(data[:split]) + gzip.compress(data[split:])

    assert received(two, " GZIP ", step) == received(data, "", step) == data


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_beyond_the_limit_is_refused(encoding: str) -> None:
    """The limit holds for what comes out, and a body of exactly so many bytes passes."""
    data = bytes(LIMIT)

    def sent(plain: bytes) -> bytes:
        return gzip.compress(plain) if encoding else plain

    assert status(sent(data + b"1"), encoding, step=1 << 20) == 413
    assert received(sent(data), encoding, 1 << 20) == data


def test_what_cannot_be_used_has_a_status() -> None:
    """No whole gzip, another encoding; an empty body is empty whatever it is called."""
    whole = gzip.compress(b"whole", mtime=0)
    for data in (b"plain", whole[:-3], whole[:5], whole + b"rest"):
        assert status(data, "gzip") == 400
    assert status(b"x", "br") == 415
    assert received(b"", "br") == received(b"", "gzip") == b""


def test_nothing_inflates_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of it came."""
    threads: list[threading.Thread] = []
    take = Inflater.take

    def noted(self: Inflater, packed: bytes) -> bytes:
        threads.append(threading.current_thread())
        assert len(packed) <= 1 << 13
        return take(self, packed)

    monkeypatch.setattr(Inflater, "take", noted)
    received(gzip.compress(bytes(range(256)) * 200, 0), "gzip", 1 << 20)

    assert threads
    assert threading.main_thread() not in threads

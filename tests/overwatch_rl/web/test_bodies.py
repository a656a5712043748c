"""Bodies: what comes in inflates within its limit, what goes out is packed where that is accepted."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.deflate import BadGzipError, TooLargeError
from overwatch_rl.web.bodies import (
    EncodingError,
    accepts_gzip,
    packed,
    read,
)

LIMIT = 1 << 16


def received(data: bytes, encoding: str = "", step: int = 7, limit: int = LIMIT) -> bytes:
    """A body that comes in pieces of `step` bytes."""

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(data), step):
            yield data[at : at + step]

    return asyncio.run(read(chunks(), encoding, limit))


@given(data=st.binary(max_size=400), step=st.integers(1, 50), split=st.integers(0, 400))
def test_gzip_comes_out_as_it_went_in(data: bytes, step: int, split: int) -> None:
    """In any pieces, as one member or as two."""
    two = gzip.compress(data[:split]) + gzip.compress(data[split:])

    assert received(packed(data), "gzip", step) == received(two, " GZIP ", step) == received(data, "", step)


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_beyond_the_limit_is_refused(encoding: str) -> None:
    """The limit holds for what comes out, and a body of exactly so many bytes passes."""
    data = bytes(LIMIT)
    wire = gzip.compress(data + b"1") if encoding else data + b"1"

    with pytest.raises(TooLargeError, match=str(LIMIT)):
        received(wire, encoding, 1 << 20)
    assert received(gzip.compress(data) if encoding else data, encoding, 1 << 20) == data


@pytest.mark.parametrize(
    "data",
    [
        b"plain", gzip.compress(b"whole", mtime=0)[:-3], gzip.compress(b"whole", mtime=0)[:5],
        gzip.compress(b"one", mtime=0) + b"rest",
    ],
)  # fmt: skip
def test_what_is_no_whole_gzip_stream_is_refused(data: bytes) -> None:
    """A stream that is none, that ends too early, or that has something else behind it."""
    with pytest.raises(BadGzipError):
        received(data, "gzip")


def test_an_empty_body_is_empty_whatever_it_is_called() -> None:
    """A GET by a client that names an encoding for nothing."""
    assert received(b"", "gzip") == b""


def test_another_encoding_is_refused_by_name() -> None:
    """The message names what to send."""
    with pytest.raises(EncodingError, match="'br' is not known; send gzip"):
        received(b"x", "br")


@pytest.mark.parametrize(
    ("header", "taken"),
    [("gzip, deflate", True), ("*", True), ("br", False), ("gzip; q=0", False), ("gzip;q=0.1", True)],
)
def test_gzip_goes_out_where_it_is_accepted(header: str, taken: bool) -> None:  # noqa: FBT001 a column
    """By the header `Accept-Encoding`."""
    assert accepts_gzip(header) is taken

"""Faster zlib: the same checksums and streams, with isal and without."""

import gzip
import runpy
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch import deflate


def test_isal_is_installed_with_the_package() -> None:
    """On the machines that have it, what is slow without it is fast."""
    assert deflate.fast_zlib.__name__ == "isal.isal_zlib"


@given(data=st.binary(max_size=2000), before=st.integers(0, (1 << 32) - 1))
def test_checksums_and_streams_are_those_of_zlib(data: bytes, before: int) -> None:
    """A log that was written with isal is read without it, and the other way round."""
    stream = deflate.fast_zlib.compressobj(1, deflate.fast_zlib.DEFLATED, 31)

    assert deflate.fast_zlib.crc32(data, before) == zlib.crc32(data, before)
    assert gzip.decompress(stream.compress(data) + stream.flush()) == data
    assert deflate.fast_zlib.decompressobj(31).decompress(gzip.compress(data)) == data


def _inflate(pieces: list[bytes]) -> None:
    inflater = deflate.Inflater(100)
    for piece in pieces:
        inflater.take(piece)
    inflater.end()


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("behind", "stated"),
    [
        (b"\n", "not valid gzip behind the end of its first stream: no stream begins there"),
        (b"\0" * 512, "not valid gzip behind the end of its first stream: no stream begins there"),
        (b"\x1fno" * 9, "not valid gzip behind the end of its first stream: "),
        (gzip.compress(b"b", mtime=0)[:-3], "cut short behind the end of its first stream"),
    ],
)
def test_what_follows_a_stream_and_is_none_is_named(behind: bytes, stated: str, cut: int) -> None:
    """However the bytes come; two whole streams are a body."""
    packed = gzip.compress(b"a") + behind
    with pytest.raises(deflate.BadGzipError, match=stated):
        _inflate([packed[place : place + cut] for place in range(0, len(packed), cut)])
    assert deflate.inflated(gzip.compress(b"a") + gzip.compress(b"b"), 100) == b"ab"


def test_without_isal_the_standard_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none for some machines."""
    monkeypatch.setitem(sys.modules, "isal", None)

    found = runpy.run_path(str(Path(deflate.__file__)))

    assert (found["fast_zlib"], found["InflateError"]) == (zlib, zlib.error)

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


def test_without_isal_the_standard_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none for some machines."""
    monkeypatch.setitem(sys.modules, "isal", None)

    found = runpy.run_path(str(Path(deflate.__file__)))

    assert (found["fast_zlib"], found["InflateError"]) == (zlib, zlib.error)

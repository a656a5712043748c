"""Deltas: what is made from them is the artifact, or it is refused, or it does not pass for the artifact."""

import re

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.encodings import (
    CHAIN,
    ENCODINGS,
    Base,
    artifact_from,
    base_of,
    encoded_delta,
)
from overwatch_rl.weights.manifest import WHOLE, RejectedError

OLD, NEW = Version(1, 3), Version(1, 4)


def numbers(number: int, count: int = 4_096) -> bytes:
    """Of a version: a part of them is near that of the version before, the others are the same."""
    draw = np.random.default_rng(3)
    held = draw.standard_normal(count, np.float32)
    for _ in range(number):
        held[: count // 8] += draw.standard_normal(count // 8, np.float32) * np.float32(1e-5)
    return held.tobytes()


def made(base: bytes, delta: bytes, size: int) -> bytes:
    """By one delta."""
    return artifact_from(Base(OLD, base), NEW, size, lambda _: delta)


@given(
    pair=st.integers(0, 300).flatmap(
        lambda size: st.tuples(st.binary(min_size=size, max_size=size), st.integers(0, 2**64))
    ),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5),
    width=st.sampled_from([2, 4]),
)
def test_a_delta_makes_the_artifact(
    pair: tuple[bytes, int], changes: list[tuple[int, int]], width: int
) -> None:
    """Byte for byte, whatever the bytes and however many there are."""
    old = pair[0] + bytes(2_000)
    new = bytearray(old)
    for at, value in changes:
        new[at % len(new)] = value
    delta = encoded_delta(Base(OLD, old), bytes(new), width)

    assert delta
    assert base_of(delta) == OLD
    assert made(old, delta, len(new)) == new


def test_deltas_in_a_row_make_the_artifact_up_to_a_bound() -> None:
    """A reader that left versions out needs those between; beyond the bound it reads the whole."""
    artifacts = [numbers(number) for number in range(CHAIN + 2)]
    versions = [Version(1, number) for number in range(CHAIN + 2)]
    deltas = {
        version: encoded_delta(Base(versions[number], artifacts[number]), artifacts[number + 1], 4)
        for number, version in enumerate(versions[1:])
    }
    size = len(artifacts[0])
    last = Version(1, 2)
    assert artifact_from(Base(Version(1, 0), artifacts[0]), last, size, deltas.__getitem__) == artifacts[2]
    far = Version(1, CHAIN + 1)
    with pytest.raises(
        FileNotFoundError, match=rf"no {CHAIN} deltas, smaller than it, lead from 001-00000000"
    ):
        artifact_from(Base(Version(1, 0), artifacts[0]), far, size, deltas.__getitem__)
    with pytest.raises(FileNotFoundError, match="lead from 001-00000002 to 001-00000002"):
        artifact_from(Base(last, artifacts[2]), last, size, deltas.__getitem__)
    with pytest.raises(FileNotFoundError, match="has 16384 bytes, 001-00000002 has 7"):
        artifact_from(Base(Version(1, 0), artifacts[0]), last, 7, deltas.__getitem__)


def test_deltas_that_would_be_larger_than_the_artifact_are_not_read() -> None:
    """One was read, then the whole is."""
    read = []
    draw = np.random.default_rng(0)
    old, new = draw.bytes(4_096), draw.bytes(2_048) + bytes(2_048)
    delta = encoded_delta(Base(Version(1, 2), bytes(2_048) + new[2_048:]), new, 4)

    def of(version: Version) -> bytes:
        read.append(version)
        return delta

    with pytest.raises(FileNotFoundError):
        artifact_from(Base(Version(1, 1), old), NEW, 4_096, of)
    assert read == [NEW]


def test_what_saves_nothing_is_not_published() -> None:
    """Numbers without a likeness, or of another count."""
    draw = np.random.default_rng(0)
    one, other = draw.bytes(4_096), draw.bytes(4_096)
    assert encoded_delta(Base(OLD, one), other, 4) == b""
    assert encoded_delta(Base(OLD, one), other[:-4], 4) == b""


@given(at=st.integers(0, 10_000), value=st.integers(1, 255))
def test_a_damaged_delta_is_refused_or_makes_something_else(at: int, value: int) -> None:
    """The SHA-256 of the manifest finds that."""
    old, new = numbers(0, 256), numbers(1, 256)
    delta = bytearray(encoded_delta(Base(OLD, old), new, 4))
    delta[at % len(delta)] ^= value
    try:
        found = made(old, bytes(delta), len(new))
    except (RejectedError, FileNotFoundError):
        return
    assert len(found) == len(new)


@given(data=st.binary(max_size=200))
def test_what_is_no_delta_is_refused(data: bytes) -> None:
    """Never with another error."""
    with pytest.raises(RejectedError, match="delta"):
        made(bytes(64), data, 64)


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (zstandard.ZstdCompressor().compress(bytes(1 << 24)), "of an artifact of another size"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64)), "of another size"),
        (zstandard.ZstdCompressor().compress(bytes(64))[:-1], "cannot be read"),
        (b"\x28\xb5\x2f\xfd", "cannot be read"),
    ],
)
def test_no_more_is_unpacked_than_the_manifest_states(packed: bytes, words: str) -> None:
    """Sixteen megabytes of zeros are some hundred bytes."""
    head = b'{"base":{"lineage":1,"number":3},"width":2}'
    with pytest.raises(RejectedError, match=words):
        made(bytes(64), len(head).to_bytes(4, "little") + head + packed, 64)


@pytest.mark.parametrize("width", [0, 3, -2, 1 << 40])
def test_a_width_that_is_none_is_refused(width: int) -> None:
    """It would shape the bytes."""
    head = f'{{"base":{{"lineage":1,"number":3}},"width":{width}}}'.encode()
    data = len(head).to_bytes(4, "little") + head + zstandard.ZstdCompressor().compress(bytes(64))
    with pytest.raises(RejectedError, match=re.escape("a delta")):
        made(bytes(64), data, 64)


def test_a_row_encodes_and_decodes_or_is_the_artifact() -> None:
    """One that only one side has would leave actors without."""
    for name, row in ENCODINGS.items():
        assert (row.encode is None) == (row.decode is None) == (name == WHOLE)

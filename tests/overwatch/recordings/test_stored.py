"""JSON values in a file: found wherever they lie, in pieces of any size, damaged or not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.recordings import stored as module
from overwatch.recordings.stored import Part, values

OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=12,
)
REPORTED = st.lists(st.dictionaries(st.text(max_size=4), OBJECTS, max_size=3), min_size=1, max_size=6)


def found(data: bytes, chunk: int = 1 << 20) -> list[bytes]:
    """The texts of all values, read in pieces."""
    module_chunk, module._CHUNK_BYTES = module._CHUNK_BYTES, chunk
    try:
        extents = list(values(lambda offset, length: data[offset : offset + length], 0))
    finally:
        module._CHUNK_BYTES = module_chunk
    for extent in extents:
        assert extent.data in {None, data[extent.offset : extent.offset + extent.length]}
    return [data[extent.offset : extent.offset + extent.length] for extent in extents]


@settings(deadline=None)
@given(
    reported=REPORTED,
    between=st.sampled_from(["\n", "", " ", "\r\n", "\n\n", " \t"]),
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 50),
    within=st.booleans(),
)
def test_values_are_found_however_they_are_written(
    reported: list[dict[str, object]], between: str, indent: int | None, chunk: int, *, within: bool
) -> None:
    """One a line, over lines, one behind another, in an array; whatever the pieces that are read."""
    texts = [json.dumps(one, indent=indent, ensure_ascii=False) for one in reported]
    data = f"[{','.join(texts)}]" if within else between.join(texts)

    assert [json.loads(text) for text in found(data.encode(), chunk)] == reported


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text('{}[]",:\\ \n1a', max_size=60).map(str.encode), st.integers(1, 9))
def test_anything_is_cut_into_the_same_values_in_pieces_of_any_size(data: bytes, chunk: int) -> None:
    """Nothing raises or goes on for ever, and no two values overlap."""
    texts = found(data)
    at = 0
    for text in texts:
        at = data.index(text, at) + len(text)

    assert found(data, chunk) == texts


GOOD = b'{"a":[{"b":"c"}]}'


@pytest.mark.parametrize(
    "torn",
    [
        b'{"a":[', b'{"a":[{"b":"c"},', b'{"a":[{"b":"c', b'{"a":[{"b":"c"', b'{"a":[{"b":', b'{"a":[{"b"',
        b'{"a":[{', b'{"a":1,', b'{"a":[1', b"{", b'{"a":]', b'{"a" "b"}', b'{"a":"x\\', b"garbage",
        b"[1, 2]", b"\x00\xff", b"null", b'"text"',
    ],
)  # fmt: skip
def test_a_damaged_value_costs_no_other(torn: bytes) -> None:
    """A line that is cut off, or is none, is one value that cannot be read; those around it are whole."""
    texts = found(b"\n".join([GOOD, torn, GOOD, GOOD, b""]))

    assert texts.count(GOOD) == 3
    assert len(texts) == 4


def test_an_array_of_any_length_is_read_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is held than a value and a piece; one that is too long is passed over by its extent."""
    monkeypatch.setattr(module, "MOST_BYTES", 4096)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 512)
    long = b'{"long":[%b]}' % b",".join([b"1"] * 5000)
    data = b"[" + b",".join([GOOD] * 3000 + [long] + [GOOD] * 10) + b"]"
    held = []

    def read(offset: int, length: int) -> bytes:
        held.append(length)
        return data[offset : offset + length]

    extents = list(values(read, 0))

    assert len(extents) == 3011
    assert extents[3000] == Part(data.index(long), len(long))
    assert max(held) == 512


def test_the_end_of_a_file_may_cut_a_value_off() -> None:
    """A value that is cut off is the last one, and is marked so."""
    data = b'[{"a":1},{"a":'
    *_, last = values(lambda offset, length: data[offset : offset + length], 0)

    assert last == Part(9, 5, is_last=True)

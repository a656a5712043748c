"""Fields of protocol buffers cut out of a message: what is left and found, whatever the bytes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.framing import cut, framed, varint

COLUMNS = pb.Chunk.COLUMNS_FIELD_NUMBER


@given(st.integers(0, (1 << 64) - 1))
def test_a_number_is_written_as_protobuf_writes_it(number: int) -> None:
    """Of every length."""
    assert b"\x10" + varint(number) == pb.Version(number=number).SerializeToString() or number == 0


@given(st.lists(st.binary(max_size=300), max_size=5), st.text(max_size=9), st.integers(0, 1 << 63))
def test_what_is_cut_out_and_what_is_left_are_the_message(
    columns: list[bytes], run: str, episode: int
) -> None:
    """Protobuf reads the rest, and the views hold the values in their order."""
    whole = pb.Chunk(run=run, episode=episode, columns=columns)
    rest, found = cut(whole.SerializeToString(), COLUMNS)
    assert [bytes(view) for view in found] == columns
    assert pb.Chunk.FromString(rest) == pb.Chunk(run=run, episode=episode)
    parts = [part for column in columns for part in framed(COLUMNS, [column[:9], column[9:]])]
    assert pb.Chunk.FromString(b"".join([rest, *parts])) == whole


@given(st.binary(max_size=80))
def test_no_bytes_lead_beyond_the_message(body: bytes) -> None:
    """An error, or parts that were in it; what protobuf reads is cut, too, groups left out."""
    try:
        rest, found = cut(body, COLUMNS)
    except ValueError:
        return
    assert len(rest) + sum(map(len, found)) <= len(body)
    try:
        whole = pb.Chunk.FromString(body)
    except DecodeError:
        return
    assert [bytes(view) for view in found][-len(whole.columns) :] == list(whole.columns)[-len(found) :]


@pytest.mark.parametrize(
    "body",
    [b"\x4a", b"\x4a\x05abc", b"\x4a" + b"\xff" * 10 + b"\x01", b"\x09\0\0", b"\x0d\0", b"\x0b\x0c", b"\x80"],
)
def test_a_broken_field_is_an_error(body: bytes) -> None:
    """Cut short, too long, without an end, or of no kind."""
    with pytest.raises(ValueError, match=r"field|number"):
        cut(body, COLUMNS)

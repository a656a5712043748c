"""Numbers as protobuf writes them."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from overwatch.otlp.varint import read_varint, varint


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=3))
def test_a_number_is_written_as_protobuf_does_and_read_again(number: int, behind: bytes) -> None:
    """Whatever lies behind it."""
    written = varint(number)
    assert AnyValue(int_value=number).SerializeToString()[1:] == written
    assert read_varint(written + behind, 0, len(written) + len(behind)) == (number, len(written))


@given(st.binary(max_size=20), st.integers(0, 20))
def test_a_number_that_does_not_end_is_beyond_everything(data: bytes, end: int) -> None:
    """So that who walks on stops there."""
    unending = bytes(byte | 0x80 for byte in data)
    assert read_varint(unending, 0, min(end, len(data))) == (0, min(end, len(data)) + 1)

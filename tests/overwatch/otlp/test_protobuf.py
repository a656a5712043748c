"""Counting a body's parts on its bytes: as many as the parser would make, at no cost."""

import tracemalloc
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from overwatch.journal import Signal
from overwatch.otlp import protobuf, wire
from overwatch.otlp.jsonl import to_json
from overwatch.otlp.protobuf import TooManyElements, read_varint, varint
from tests.overwatch.otlp.messages import messages

SIGNALS = list(wire.REQUESTS)


def requests(signal: Signal) -> st.SearchStrategy[Message]:
    """Random requests of a signal."""
    return messages(wire.REQUESTS[signal].DESCRIPTOR)


def made_of(message: Message) -> int:
    """Messages inside of a message, as its parser made them."""
    count = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            inside: list[Any] = list(value) if field.is_repeated else [value]
            count += len(inside) + sum(made_of(each) for each in inside)
    return count


@settings(deadline=None)
@given(st.sampled_from(SIGNALS), st.data())
def test_the_count_is_the_parsers(signal: Signal, data: st.DataObject) -> None:
    """A body of exactly as many messages as are allowed passes, one of more does not."""
    message = data.draw(requests(signal))
    body, count = message.SerializeToString(), made_of(message)
    protobuf.check_protobuf(signal, body, max(count, 1))
    if count > 1 and len(body) > 2 * (count - 1):
        with pytest.raises(TooManyElements, match=str(count - 1)):
            protobuf.check_protobuf(signal, body, count - 1)


@settings(deadline=None)
@given(st.sampled_from(SIGNALS), st.binary(max_size=200))
def test_any_bytes_are_counted(signal: Signal, body: bytes) -> None:
    """Bytes that are no message never raise anything but the refusal; what parses is never counted short."""
    for limit in (1, 3):
        try:
            protobuf.check_protobuf(signal, body, limit)
        except TooManyElements:
            continue
        try:
            message = wire.REQUESTS[signal].FromString(body)
        except DecodeError:
            continue
        assert made_of(message) <= max(limit, len(body) // 2)


def empties(count: int) -> bytes:
    """A request of one resource with many empty attributes, two bytes each."""
    return _nested(1, _nested(1, b"\x0a\x00" * count))


def _nested(field: int, inside: bytes) -> bytes:
    length, size = b"", len(inside)
    while size >= 128:
        length += bytes((size & 127 | 128,))
        size >>= 7
    return bytes((field << 3 | 2,)) + length + bytes((size,)) + inside


def test_ten_million_empty_attributes_cost_nothing() -> None:
    """20 MB of two-byte attributes are refused before anything is made of them."""
    body = empties(10_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements, match="524288"):
            protobuf.check_protobuf(Signal.LOGS, body, 1 << 19)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@settings(deadline=None)
@given(st.data())
def test_json_of_few_values_passes(data: st.DataObject) -> None:
    """Text that looks like many values is still text."""
    message = data.draw(requests(Signal.LOGS))
    text = to_json(Signal.LOGS, message.SerializeToString())
    marks = sum(text.count(mark) for mark in (b"{", b"[", b","))

    protobuf.check_json(text, max(marks, 1))
    protobuf.check_json(b'{"x":"' + b'[{,\\"' * 1000 + b'"}', 2)


def test_json_of_many_values_is_refused() -> None:
    """A million empty objects are refused before they are made."""
    with pytest.raises(TooManyElements, match="raise max_elements"):
        protobuf.check_json(b'{"resourceLogs":[' + b"{}," * 1_000_000 + b"{}]}", 1 << 19)


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

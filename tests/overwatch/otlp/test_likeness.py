"""Texts read by their likeness: exactly what the general way reads, or left to it."""

import random
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.journal import Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from overwatch.otlp.likeness import Shape, shape_of, values_in
from tests import fakes
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.test_jsonl import KINDS

NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
OTHERS = (
    b"0 -0 7 007 -5 127 128 16384 9223372036854775807 9223372036854775808 18446744073709551616 1.5 -2.25e-3 "
    b"-9223372036854775808 -9223372036854775809 1e400 1E5 NaN +1 1_0 AAAA AA== \xc3\xa9 \\u0041 word"
)
LITERALS = st.sampled_from([b"", b" 1", *OTHERS.split()])


def general(signal: Signal, line: bytes) -> bytes | None:
    """What the general way reads; `None` where it refuses."""
    try:
        return from_json(signal, line)
    except MalformedJson:
        return None


def step(number: int, envs: int = 4) -> bytes:
    """A line of an env step."""
    dice = random.Random(number)  # noqa: S311 numbers for a test
    event = fakes.envs(
        fakes.START_NS + number, range(envs), number, reward=[dice.random() for _ in range(envs)]
    )
    return to_json(
        Signal.LOGS, request(fakes.records([event], first_seq=number), origin_attributes(fakes.ORIGIN))
    )


def shape_with_all(signal: Signal, line: bytes) -> Shape | None:
    """A shape of a whole line in which every value varies."""
    values = values_in(line)
    return shape_of(line, values, partial(from_json, signal), range(len(values)))


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_text_with_other_values_is_read_as_ever_or_not_at_all(
    signal: Signal, data: st.DataObject
) -> None:
    """Values of other sizes, widths and forms, and bytes of anything, in lines of every message."""
    line = to_json(signal, data.draw(messages(KINDS[signal].DESCRIPTOR)).SerializeToString())
    shape = shape_with_all(signal, line)
    if shape is None:
        return
    assert shape.read(line) == (from_json(signal, line), len(line))
    spans = [value[1:] for value in values_in(line)] + [found.span() for found in NUMBER.finditer(line)]
    for start, stop in data.draw(st.lists(st.sampled_from(spans), max_size=8) if spans else st.just([])):
        other = line[:start] + data.draw(LITERALS) + line[stop:]
        told = shape.read(other)
        assert told is None or told == (general(signal, other), len(other))
    for at in data.draw(st.lists(st.integers(0, len(line) - 1), max_size=8)):
        other = line[:at] + data.draw(st.binary(max_size=2)) + line[at + 1 :]
        told = shape.read(other)
        assert told is None or told == (general(signal, other), len(other))


def test_a_value_that_takes_another_width_changes_the_sizes_around_it() -> None:
    """Steps of one, two and three bytes, and as many envs as there are."""
    shape = shape_with_all(Signal.LOGS, step(1))
    assert shape is not None

    for line in (step(127), step(128), step(20_000, 90), step(5, 1), step(6)):
        assert shape.read(line) == (from_json(Signal.LOGS, line), len(line))


def test_a_time_of_zero_is_left_to_the_general_way() -> None:
    """It is no field of the message at all."""
    line = step(1)
    shape = shape_with_all(Signal.LOGS, line)
    assert shape is not None

    assert shape.read(line.replace(b'"%d"' % (fakes.START_NS + 1), b'"0"')) is None


def test_words_and_bytes_that_were_not_named_must_be_the_same() -> None:
    """A shape without any of them reads other numbers, and no other columns."""
    line = step(1)
    shape = shape_of(line, values_in(line), partial(from_json, Signal.LOGS))
    assert shape is not None

    other = line.replace(b'"intValue":"1"', b'"intValue":"300"')
    assert shape.read(other) == (from_json(Signal.LOGS, other), len(other))
    assert shape.read(step(2)) is None


def test_a_value_that_the_general_way_does_not_keep_makes_no_shape() -> None:
    """Of a name given twice only the last one is in the message."""
    line = (
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"5","timeUnixNano":"6",'
        b'"severityNumber":9}]}]}]}'
    )

    assert shape_with_all(Signal.LOGS, line) is None

"""Lines read by their likeness: exactly what the general way reads, or left to it."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.journal import Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from overwatch.otlp.likeness import MAX_SHAPES, JsonReader, shape_of
from tests import fakes
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.strategies import RECORDS
from tests.overwatch.otlp.test_jsonl import KINDS

NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
OTHERS = (
    b"0 -0 7 007 -5 127 128 16384 9223372036854775807 9223372036854775808 18446744073709551616 1.5 -2.25e-3 "
    b"1e400 1E5 NaN +1 1_0 AAAA"
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


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_line_with_other_numbers_is_read_as_ever_or_not_at_all(
    signal: Signal, data: st.DataObject
) -> None:
    """Numbers of other values, widths and forms, and bytes of anything, in lines of every message."""
    line = to_json(signal, data.draw(messages(KINDS[signal].DESCRIPTOR)).SerializeToString())
    shape = shape_of(signal, line, from_json(signal, line))
    if shape is None:
        return
    assert shape.read(line) == from_json(signal, line)
    found = list(NUMBER.finditer(line))
    for place in data.draw(st.lists(st.sampled_from(found), max_size=8) if found else st.just([])):
        other = line[: place.start()] + data.draw(LITERALS) + line[place.end() :]
        told = shape.read(other)
        assert told is None or told == general(signal, other)
    for at in data.draw(st.lists(st.integers(0, len(line) - 1), max_size=8)):
        other = line[:at] + data.draw(st.binary(max_size=2)) + line[at + 1 :]
        told = shape.read(other)
        assert told is None or told == general(signal, other)


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_a_reader_says_what_the_general_way_says(records: list) -> None:
    """Of the same records over and over, which it has learned by then."""
    line = to_json(Signal.LOGS, request(records, {}))
    reader = JsonReader()
    assert {reader.read(Signal.LOGS, line) for _ in range(4)} == {from_json(Signal.LOGS, line)}


def test_steps_of_a_run_are_learned_and_read_by_their_likeness() -> None:
    """From the third on, whatever their numbers are, and again where a number takes another byte."""
    lines = [step(number) for number in range(1, 400)]
    reader = JsonReader()

    assert [reader.read(Signal.LOGS, line) for line in lines] == [
        from_json(Signal.LOGS, line) for line in lines
    ]
    assert reader.hits > 0.97 * len(lines)


def test_a_number_that_takes_another_width_is_left_to_the_general_way() -> None:
    """A shape of one-byte steps does not read step 128, nor a time of zero."""
    line = step(1)
    shape = shape_of(Signal.LOGS, line, from_json(Signal.LOGS, line))
    assert shape is not None

    assert shape.read(step(127)) == from_json(Signal.LOGS, step(127))
    assert shape.read(step(128)) is None
    assert shape.read(line.replace(b'"%d"' % (fakes.START_NS + 1), b'"0"')) is None


def test_a_line_that_is_malformed_says_so_as_ever() -> None:
    """Before and after its like was learned."""
    reader = JsonReader()
    for number in range(1, 5):
        reader.read(Signal.LOGS, step(number))

    with pytest.raises(MalformedJson, match="timeUnixNano"):
        reader.read(Signal.LOGS, step(5).replace(b'"timeUnixNano":"', b'"timeUnixNano":"x'))


def test_a_reader_keeps_few_shapes_and_stops_where_nothing_comes_again() -> None:
    """A file in which every text is another costs a look, and no memory."""
    reader = JsonReader()
    for number in range(3000):
        line = b'{"resourceLogs":[{"schemaUrl":"%d"}]}' % (number % 1500)
        reader.read(Signal.LOGS, line)
    for envs in range(2, 60):
        for number in range(1, 4):
            reader.read(Signal.LOGS, step(number, envs))

    assert reader.kept <= MAX_SHAPES
    assert reader.hits < 100

"""A reader of many lines: what the general way says of each, sooner."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.events import Event, LogLine, Severity
from overwatch.journal import Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.otlp.jsonl import MalformedJson, from_json, to_json
from overwatch.otlp.jsonreader import MAX_SHAPES, JsonReader
from overwatch.simulate.script import Script
from overwatch.simulate.settings import Settings
from tests import fakes
from tests.overwatch.otlp.messages import messages
from tests.overwatch.otlp.strategies import RECORDS
from tests.overwatch.otlp.test_jsonl import KINDS
from tests.overwatch.otlp.test_likeness import general, step


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_a_reader_says_what_the_general_way_says(records: list) -> None:
    """Of the same records over and over, which it has learned by then."""
    line = to_json(Signal.LOGS, request(records, {}))
    reader = JsonReader()
    assert {reader.read(Signal.LOGS, line) for _ in range(4)} == {from_json(Signal.LOGS, line)}


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_records_in_any_order_and_number_are_read_as_ever(records: list, data: st.DataObject) -> None:
    """By a reader that has learned some of them, and that meets bytes of anything between."""
    reader = JsonReader()
    for _ in range(6):
        chosen = data.draw(st.lists(st.sampled_from(records), min_size=1, max_size=6))
        line = to_json(Signal.LOGS, request(chosen, origin_attributes(fakes.ORIGIN)))
        assert reader.read(Signal.LOGS, line) == from_json(Signal.LOGS, line)
        at = data.draw(st.integers(0, len(line) - 1))
        other = line[:at] + data.draw(st.binary(max_size=2)) + line[at + 1 :]
        assert _told(reader, Signal.LOGS, other) == general(Signal.LOGS, other)


@pytest.mark.parametrize("signal", sorted(KINDS, key=lambda signal: signal.value))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lines_of_every_message_are_read_as_ever(signal: Signal, data: st.DataObject) -> None:
    """With several resources and scopes, with none, with fields that our own exporters never set."""
    reader = JsonReader()
    bodies = st.builds(lambda one: one.SerializeToString(), messages(KINDS[signal].DESCRIPTOR))
    lines = [to_json(signal, body) for body in data.draw(st.lists(bodies, min_size=1, max_size=3))]
    for line in lines * 3:
        assert reader.read(signal, line) == from_json(signal, line)


def _told(reader: JsonReader, signal: Signal, line: bytes) -> bytes | None:
    try:
        return reader.read(signal, line)
    except MalformedJson:
        return None


def test_steps_of_a_run_are_learned_and_read_by_their_likeness() -> None:
    """From the fourth on, whatever their numbers are and however many bytes they take."""
    lines = [step(number) for number in range(1, 400)]
    reader = JsonReader()

    assert [reader.read(Signal.LOGS, line) for line in lines] == [
        from_json(Signal.LOGS, line) for line in lines
    ]
    assert reader.hits > 0.98 * len(lines)


def test_records_of_a_simulated_run_are_read_by_their_likeness_though_no_line_is_like_another() -> None:
    """Envs, slots, machines, phases and facts come in another mixture ten times a second."""
    script = Script(Settings(gpus=2, envs=8, slots=3, seconds=60), fakes.START_NS)
    reader, records = JsonReader(), 0
    for moment in script.moments():
        told = fakes.records(list(moment.events), fakes.ORIGIN, 1 + records)
        records += len(told)
        line = to_json(Signal.LOGS, request(told, origin_attributes(fakes.ORIGIN)))
        assert reader.read(Signal.LOGS, line) == from_json(Signal.LOGS, line)

    assert reader.hits > 0.8 * records


def test_a_line_that_is_malformed_says_so_as_ever() -> None:
    """Before and after its like was learned, and which record it is."""
    reader = JsonReader()
    for number in range(1, 5):
        reader.read(Signal.LOGS, step(number))
    line = step(5).replace(b'"timeUnixNano":"', b'"timeUnixNano":"x')
    with pytest.raises(MalformedJson) as general_way:
        from_json(Signal.LOGS, line)

    with pytest.raises(MalformedJson) as told:
        reader.read(Signal.LOGS, line)
    assert str(told.value) == str(general_way.value)


def test_a_reader_keeps_few_shapes_and_stops_where_nothing_comes_again() -> None:
    """A file in which every text is another costs a look, and little memory."""
    reader, dice = JsonReader(), random.Random(1)  # noqa: S311 words for a test
    for number in range(3000):
        said: list[Event] = [
            LogLine(
                at=1 + number,
                severity=Severity.INFO,
                message=f"é{dice.random()}",
                subsystem="x",
                fields={f"é{number % 1500}": "y"},
            )
        ]
        reader.read(Signal.LOGS, to_json(Signal.LOGS, request(fakes.records(said), {})))
        reader.read(Signal.METRICS, b'{"resourceMetrics":[{"schemaUrl":"%d"}]}' % (number % 1500))

    assert reader.kept <= 2 * MAX_SHAPES
    assert reader.hits < 100


def test_a_shape_that_had_to_go_is_learned_again() -> None:
    """More shapes than are kept, one after the other: the first one is read by its likeness later too."""
    reader = JsonReader()

    def tell(at: int, names: int) -> None:
        fields = {f"f{name}": "x" for name in range(names)}
        said: list[Event] = [
            LogLine(at=at, severity=Severity.INFO, message="m", subsystem="x", fields=fields)
        ]
        reader.read(Signal.LOGS, to_json(Signal.LOGS, request(fakes.records(said, first_seq=1), {})))

    for names in range(1, MAX_SHAPES + 20):
        for at in range(1, 5):
            tell(at, names)
    before = reader.hits
    for at in range(1, 5):
        tell(at, 1)

    assert reader.hits - before == 3

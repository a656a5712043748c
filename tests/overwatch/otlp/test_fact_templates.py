"""Many facts read at once say what the general path says."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.events import EnvCrashed, Event, LogLine, RunFinished, Severity
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import decode
from overwatch.otlp.fact_template import learn_fact
from overwatch.otlp.fact_templates import LARGEST_BYTES, FactTemplates
from overwatch.otlp.groups import LARGEST, LEAST, MOST
from overwatch.otlp.lengths import LEARN_AT
from overwatch.otlp.times import LATEST
from overwatch.otlp.value import to_pairs
from tests.overwatch.otlp.strategies import EVENTS
from tests.overwatch.otlp.test_line_templates import T, body, gate, timeless

LOGS = Signal.LOGS


def taught(*others: Event) -> FactTemplates:
    """Templates that know gates, and what others there are."""
    facts = FactTemplates()
    for number in range(LEARN_AT):
        told = [gate(200 + number + n) for n in range(LEAST)]
        assert facts.read(body(*told, *others)) is None
        facts.learn()
    assert facts.learned
    return facts


def message(*events: Event) -> ExportLogsServiceRequest:
    """A request that can be changed."""
    return ExportLogsServiceRequest.FromString(body(*events))


def records_of(request: ExportLogsServiceRequest) -> list[LogRecord]:
    """Its log records."""
    return list(request.resource_logs[0].scope_logs[0].log_records)


def test_known_facts_are_read_by_template() -> None:
    """However many, and beside others."""
    facts = taught()
    line = LogLine(at=T, severity=Severity.INFO, message="hello", subsystem="x")
    crash = EnvCrashed(at=T, env_id=3, error="boom")
    many = [gate(100 + n) for n in range(2 * MOST + 1)]
    for events in (many, [line, *many[:LEAST], crash, *many[:3], line], [crash, *many[:LEAST]]):
        told = body(*events)
        assert facts.read(told) == decode(LOGS, told)
    assert facts.read(body(*many[: LEAST - 1])) is None
    assert facts.read(body(*[line] * LEAST)) is None
    assert facts.read(b"") is None


def test_every_kind_of_text_and_number_is_learned() -> None:
    """Log lines by their message, crashes by their words; what is one of a few words stays as it is."""
    lines = [LogLine(at=T + n, severity=Severity.INFO, message=f"line {n}") for n in range(10, 10 + LEAST)]
    crashes = [EnvCrashed(at=T + n, env_id=n, error=f"boom {n}") for n in range(10, 10 + LEAST)]
    ends = [RunFinished(at=T + n, outcome="failed", reason=f"why {n}") for n in range(10, 10 + LEAST)]
    facts = taught(*lines, *crashes, *ends)
    assert facts.learned == 4
    told = body(*ends, *crashes, *lines)
    assert facts.read(told) == decode(LOGS, told)
    other = body(*[RunFinished(at=T, outcome="stopped", reason="why 10") for _ in range(LEAST)])
    assert facts.read(other) in {None, decode(LOGS, other)}


@pytest.mark.parametrize(
    "change",
    [
        lambda log: setattr(log, "time_unix_nano", 0),
        lambda log: setattr(log, "time_unix_nano", LATEST),
        lambda log: setattr(log, "time_unix_nano", LATEST + 1),
        lambda log: setattr(log, "observed_time_unix_nano", 1 << 63),
        lambda log: setattr(log.attributes[2].value, "string_value", "s\x0022"),
        lambda log: setattr(log.attributes[2].value, "string_value", "222\x00"),
        lambda log: setattr(log.attributes[2].value, "string_value", "\xe9\xe9"),
        lambda log: setattr(log.attributes[5].value, "double_value", float("inf")),
        lambda log: setattr(log.attributes[5].value, "double_value", -0.0),
        lambda log: setattr(log, "event_name", "overwatch.gate_evaluateX"),
        lambda log: setattr(log, "event_name", "foreignish.gate_evaluate"),
        lambda log: log.attributes.extend(to_pairs({wire.RUN_ID: "other"})),
        lambda log: log.attributes.extend(to_pairs({wire.RUN_ID: "x" * (wire.LONGEST_ID + 1)})),
        lambda log: log.attributes.extend(to_pairs({wire.SEQ: 5})),
    ],
)
def test_what_is_not_of_the_shape_is_read_as_ever(change: Callable[[LogRecord], None]) -> None:
    """One fact among known ones."""
    facts, request = taught(), message(*(gate(100 + n) for n in range(2 * LEAST)))
    change(records_of(request)[3])
    told = request.SerializeToString()
    assert facts.read(told) == decode(LOGS, told)


def test_a_time_of_0_is_no_time() -> None:
    """As the general path has it."""
    facts, told = taught(), timeless(103)
    said = facts.read(told)
    assert said == decode(LOGS, told)
    assert said is not None
    assert (said.untimed, said.problems) == (1, ())


@pytest.mark.parametrize("own", ["", "mine", "x" * (wire.LONGEST_ID + 1)])
def test_facts_may_name_their_own_run(own: str) -> None:
    """It goes before the resource's; an empty one, or one too long, is judged as ever."""
    request = message(*(gate(100 + n) for n in range(LEAST)))
    for record in records_of(request):
        record.attributes.extend(to_pairs({wire.RUN_ID: own}))
    named = request.SerializeToString()
    del request.resource_logs[0].resource.attributes[:]
    facts = FactTemplates()
    for _ in range(LEARN_AT + 1):
        for told in (named, request.SerializeToString()):
            said = facts.read(told)
            assert said in {None, decode(LOGS, told)}
            facts.learn()
    assert facts.learned


def test_facts_that_name_no_run_are_left_to_the_general_path() -> None:
    """Which rejects them, with the reason."""
    facts, request = taught(), message(*(gate(100 + n) for n in range(LEAST)))
    del request.resource_logs[0].resource.attributes[:]
    told = request.SerializeToString()
    assert facts.read(told) is None
    assert [problem.reason for problem in decode(LOGS, told).problems] == ["no_run"] * LEAST


def test_a_run_id_that_is_no_text_is_none() -> None:
    """The resource's counts."""
    request = message(*(gate(100 + n) for n in range(LEAST)))
    for record in records_of(request):
        record.attributes.extend(to_pairs({wire.RUN_ID: [1, 2]}))
    told, facts = request.SerializeToString(), FactTemplates()
    for _ in range(LEARN_AT + 1):
        assert facts.read(told) in {None, decode(LOGS, told)}
        facts.learn()


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4))
def test_facts_of_any_kind_are_read_as_ever(events: list[Event]) -> None:
    """Once they came often enough to be known."""
    told, facts = body(*events * LEAST), FactTemplates()
    general = decode(LOGS, told)
    for _ in range(LEARN_AT + 1):
        said = facts.read(told)
        assert said is None or repr(said) == repr(general)
        facts.learn()


def test_who_reads_may_rest() -> None:
    """Between groups, and before each record that is strange."""
    rested: list[int] = []
    facts = taught()
    facts.read(body(*(gate(100 + n) for n in range(2 * MOST))), lambda: rested.append(1))
    assert len(rested) >= 2


def test_large_facts_and_requests_are_not_learned() -> None:
    """They are left to the general path."""
    facts = FactTemplates()
    for told in (
        body(*(gate(100 + n, seed_id="x" * LARGEST) for n in range(LEAST))),
        body(*[gate(100, seed_id="x" * LARGEST_BYTES)] * LEAST),
    ):
        for _ in range(LEARN_AT + 1):
            assert facts.read(told) is None
            facts.learn()
    assert not facts.learned


def test_what_is_no_fact_of_ours_has_no_template() -> None:
    """Measurements and columns have others; what is malformed has none."""
    assert learn_fact(b"") is None
    assert learn_fact(b"\xff") is None
    assert learn_fact(LogRecord(time_unix_nano=T, event_name="foreign").SerializeToString()) is None
    assert learn_fact(LogRecord(event_name="overwatch.gate_evaluated").SerializeToString()) is None

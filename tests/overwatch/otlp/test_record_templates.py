"""Requests of known records are read as the general path reads them."""

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from overwatch.catalog import Scope
from overwatch.events import Column, Event, LogLine, Measured, Origin, Record, Severity
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.lengths import LEARN_AT
from overwatch.otlp.record_templates import LARGEST_RECORD, MOST_STRANGE_BYTES, PATIENCE
from overwatch.otlp.templates import TemplateReader, Templates
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.test_record_template import T, envs, policy

LOGS = Signal.LOGS
ORIGIN = Origin(run_id="run-1", epoch="e", ours=True)


def body(*events: Event, origin: Origin = ORIGIN, seq: int = 1000) -> bytes:
    """One request of the SDK."""
    return request([Record(origin=origin, event=event, seq=seq + i) for i, event in enumerate(events)], {})


def taught() -> Templates:
    """Templates that know updates of a policy and steps of envs."""
    templates = Templates()
    for number in range(LEARN_AT):
        told = body(policy(number), envs(number))
        assert templates.read(LOGS, told) is None
        templates.study(LOGS, told)
    assert templates.learned == 2
    return templates


def test_known_records_are_read_in_any_company() -> None:
    """However many, in whatever order, of whatever producer, beside records that are strange."""
    templates, other = taught(), Origin(run_id="run-2", rank=3, epoch="f", ours=True)
    line = LogLine(at=T, severity=Severity.INFO, message="hello", subsystem="x")
    for told in (
        body(policy(7), envs(7)),
        body(envs(9)),
        body(envs(9), line, policy(8), envs(10), line),
        body(line, policy(8), origin=other),
        body(policy(8), origin=other) + body(envs(9)),
    ):
        said = templates.read(LOGS, told)
        assert said is not None
        assert said == decode(LOGS, told)


def test_a_record_may_name_its_own_run_or_none() -> None:
    """The resource's run counts where the record has none; without either the general path rejects it."""
    templates = taught()
    nameless = ExportLogsServiceRequest.FromString(body(policy(7), envs(7)))
    del nameless.resource_logs[0].resource.attributes[:]
    told = nameless.SerializeToString()
    assert templates.read(LOGS, told) is None
    assert [problem.reason for problem in decode(LOGS, told).problems] == ["no_run", "no_run"]


def test_strange_records_beside_known_ones_are_learned_too() -> None:
    """A run that begins to say more is soon known again."""
    templates = Templates()
    for number in range(LEARN_AT):
        templates.study(LOGS, body(policy(number)))
    for number in range(LEARN_AT):
        said = templates.read(LOGS, body(policy(number), envs(number)))
        templates.study(LOGS, body(policy(number), envs(number)), known=said is not None)
    assert templates.learned == 2
    assert templates.read(LOGS, body(envs(9))) == decode(LOGS, body(envs(9)))


def test_a_shape_that_changes_in_the_middle_of_a_request_is_never_read_wrongly() -> None:
    """Unknown fields, names in another order, parts that come twice: as the parser says, or nothing."""
    templates = taught()
    message = ExportLogsServiceRequest.FromString(body(policy(7), envs(7), policy(8)))
    records = message.resource_logs[0].scope_logs[0].log_records
    records[1].attributes.reverse()
    told = message.SerializeToString()
    assert templates.read(LOGS, told) == decode(LOGS, told)
    plain = body(policy(7))
    resource = ExportLogsServiceRequest.FromString(plain).resource_logs[0]
    again = ExportLogsServiceRequest.FromString(plain)
    again.resource_logs[0].scope_logs[0].scope.name = "x" * 200
    for odd in (
        plain + b"\x58\x01",
        plain + b"\x0a\x03\x12\x01\x58",
        plain + b"\x0a\x05\x1a\x03\xff\xfe\xfd",
        plain + ExportLogsServiceRequest(resource_logs=[resource]).SerializeToString()[:-1],
        again.SerializeToString(),
        plain[:-3],
    ):
        said = templates.read(LOGS, odd)
        if said is not None:
            assert said == decode(LOGS, odd)


def test_lengths_that_are_written_too_long_are_left_to_the_parser() -> None:
    """A parser refuses what more bytes than a length needs could still say."""
    templates, told = taught(), body(policy(7))
    size = len(told) - 3
    assert told[1:3] == bytes([size & 0x7F | 0x80, size >> 7])
    for more in range(1, 8):
        long = bytes([size & 0x7F | 0x80, size >> 7 | 0x80, *[0x80] * (more - 1), 0])
        odd = told[:1] + long + told[3:]
        said = templates.read(LOGS, odd)
        if said is not None:
            assert said == decode(LOGS, odd)


def test_requests_of_strangers_are_given_back_soon() -> None:
    """Nothing known among the first few, or too much that is strange: the general path has it all."""
    templates = taught()
    line = LogLine(at=T, severity=Severity.INFO, message="hello", subsystem="x")
    assert templates.read(LOGS, body(*[line] * PATIENCE, policy(1))) is None
    assert templates.read(LOGS, body(*[line] * (PATIENCE - 1), policy(1))) is not None
    long = LogLine(at=T, severity=Severity.INFO, message="x" * MOST_STRANGE_BYTES, subsystem="x")
    assert templates.read(LOGS, body(policy(1), long)) is None


def test_a_reader_of_many_bodies_learns_as_it_goes() -> None:
    """Replay reads what it read before without a parser, and what is no message is said."""
    reader = TemplateReader()
    for number in range(2 * LEARN_AT):
        told = body(policy(number), envs(number))
        assert reader.read(LOGS, told) == decode(LOGS, told)
    with pytest.raises(MalformedBody):
        reader.read(LOGS, b"\x0a\xff")


def test_records_of_large_fleets_are_the_parsers() -> None:
    """Their columns are copied faster than a template looks at them: nothing is learned of them."""
    templates, rows = Templates(), LARGEST_RECORD // 8 + 1
    for number in range(3 * LEARN_AT):
        event = Measured(
            at=T + number,
            scope=Scope.ENV,
            keys={"env_id": Column.of(range(rows))},
            values={"overwatch.env.reward": Column.of([number + 0.5] * rows)},
        )
        templates.study(LOGS, body(event))
    assert templates.learned == 0
    for number in range(3 * LEARN_AT):
        templates.study(LOGS, body(policy(number)))
    assert templates.read(LOGS, body(event, policy(77))) is None


def test_a_frame_that_is_known_is_known_only_as_a_whole() -> None:
    """The same bytes before a record and as many in all, or the frame is looked at anew."""
    templates, other = taught(), Origin(run_id="run-2", epoch="e", ours=True)
    line = LogLine(at=T, severity=Severity.INFO, message="hello", subsystem="x")
    for told in (
        body(policy(7)), body(policy(8)), body(policy(8), origin=other), body(policy(9)), body(envs(9)),
        body(policy(9), line), body(policy(9)) + body(line), body(policy(9)) + b"\x0a\x00", body(policy(9)),
        body(policy(8), envs(8)), body(policy(9), envs(9)), body(envs(9), policy(9)),
        body(policy(9), envs(9), origin=other), body(policy(9)) + body(envs(9), origin=other),
        body(policy(9), origin=other) + body(envs(9)), body(*[policy(9)] * 20), body(*[policy(8)] * 20),
    ):  # fmt: skip
        assert templates.read(LOGS, told) == decode(LOGS, told)


def test_one_strange_record_among_known_ones_is_read_in_a_frame_that_is_known() -> None:
    """As many bytes at the same place say something else than the template knows."""
    templates = taught()
    known, strange = body(policy(7), envs(7)), body(policy(8), envs(8))
    assert templates.read(LOGS, known) == decode(LOGS, known)
    strange = strange.replace(b"overwatch.env.reward", b"overwatch.env.drawer")
    assert templates.read(LOGS, strange) == decode(LOGS, strange)

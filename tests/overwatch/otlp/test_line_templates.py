"""Lines by template say what the general path writes, byte for byte."""

import random
import struct
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.events import Event, GateEvaluated, Origin, Record
from overwatch.journal import Signal
from overwatch.otlp.encode import request
from overwatch.otlp.groups import LARGEST, LEAST, MOST
from overwatch.otlp.jsonl import from_json, to_json
from overwatch.otlp.lengths import LEARN_AT
from overwatch.otlp.line_templates import LARGEST_BYTES, LineTemplates
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.fuzzing import stream
from tests.overwatch.otlp.messages import messages

LOGS = Signal.LOGS
ORIGIN = Origin(run_id="run-1", epoch="e", ours=True)
T = 1_790_000_000_000_000_000


def gate(number: int, **fields: object) -> Event:
    """A fact whose texts and numbers are as wide for every three-digit number."""
    said = {"env_id": number % 100, "slot": "r0c0", "seed_id": f"s{number}", "gate": "G2", "passed": True}
    return GateEvaluated(at=T + number, **{**said, "score": number / 8, **fields})  # type: ignore[arg-type]


def body(*events: Event, first: int = 1000) -> bytes:
    """One request of the SDK."""
    return request([Record(origin=ORIGIN, event=e, seq=first + i) for i, e in enumerate(events)], {})


def taught() -> LineTemplates:
    """Templates that know gates."""
    lines = LineTemplates()
    for number in range(LEARN_AT):
        lines.to_json(LOGS, body(*(gate(200 + number + n) for n in range(LEAST))))
    assert not lines.known
    return lines


def changed(change: Callable[[LogRecord], None], which: int = 3) -> bytes:
    """A request of gates, one of which is changed."""
    message = ExportLogsServiceRequest.FromString(body(*(gate(100 + n) for n in range(2 * LEAST))))
    change(message.resource_logs[0].scope_logs[0].log_records[which])
    return message.SerializeToString()


def test_known_records_are_written_by_template() -> None:
    """All that are of a known shape; of other widths the general path writes them until they are known."""
    lines, told = taught(), body(*(gate(100 + n) for n in range(3 * MOST)))
    assert lines.to_json(LOGS, told) == to_json(LOGS, told)
    assert lines.known == 3 * MOST
    mixed = body(*(gate(n, seed_id="x" * (n % 3)) for n in range(100, 160)))
    for _ in range(3 * LEARN_AT):
        assert lines.to_json(LOGS, mixed) == to_json(LOGS, mixed)
    assert lines.known > 4 * MOST


def set_time(log: LogRecord, at: int) -> None:
    """Another time."""
    log.time_unix_nano = at


def set_text(log: LogRecord, text: str) -> None:
    """Another seed."""
    log.attributes[2].value.string_value = text


def set_score(log: LogRecord, score: float) -> None:
    """Another score."""
    log.attributes[5].value.double_value = score


@pytest.mark.parametrize(
    "change",
    [
        lambda log: set_time(log, 0),
        lambda log: set_time(log, (1 << 64) - 1),
        lambda log: set_text(log, 's"22'),
        lambda log: set_text(log, "s\\22"),
        lambda log: set_text(log, "s\n22"),
        lambda log: set_text(log, "s\x0022"),
        lambda log: set_text(log, "222\x00"),
        lambda log: set_text(log, "s\x7f22"),
        lambda log: set_text(log, "éé"),
        lambda log: set_text(log, "%d%b"),
        lambda log: set_score(log, float("nan")),
        lambda log: set_score(log, float("-inf")),
        lambda log: set_score(log, -0.0),
        lambda log: set_score(log, 5e-324),
        lambda log: set_score(log, 1e16),
        lambda log: log.ClearField("severity_number"),
        lambda log: log.attributes.add(),
        lambda log: log.attributes.reverse(),
    ],
)
def test_what_is_not_of_the_shape_is_written_as_ever(change: Callable[[LogRecord], None]) -> None:
    """One record among known ones: its line, and theirs, are those of the general path."""
    lines, told = taught(), changed(change)
    assert lines.to_json(LOGS, told) == to_json(LOGS, told)
    assert lines.known >= 2 * LEAST - 1


@pytest.mark.parametrize(
    "odd",
    [
        lambda record: record + b"\x78\x01",
        lambda record: b"\x59" + struct.pack("<Q", 7) + record,
        lambda record: record.replace(b"\x10\x09", b"\x10\x09\x10\x0a", 1),
        lambda record: record + record,
        lambda record: record.replace(b"overwatch.gate", b"overwatch.\x80ate", 1),
        lambda record: record[:-1],
        lambda _: b"",
    ],
)
def test_odd_bytes_are_read_as_ever(odd: Callable[[bytes], bytes]) -> None:
    """Unknown fields, another order, a field twice, no text, the end missing."""
    lines = taught()
    plain = ExportLogsServiceRequest.FromString(body(*(gate(100 + n) for n in range(LEAST))))
    record = plain.resource_logs[0].scope_logs[0].log_records[0].SerializeToString()
    for count in (1, LEAST):
        made = odd(record)
        scope = b"".join(b"\x12" + _sized(made) for _ in range(count)) + b"\x12" + _sized(record)
        told = b"\x0a" + _sized(b"\x12" + _sized(scope))
        for _ in range(LEARN_AT + 1):
            assert said(lines.to_json, told) == said(to_json, told)


def timeless(number: int) -> bytes:
    """A request of gates, one of which says its time, and that it is none."""
    told = body(*(gate(100 + n) for n in range(2 * LEAST)))
    time = struct.pack("<Q", T + number)
    assert told.count(b"\x09" + time) == 1
    return told.replace(b"\x09" + time, b"\x09" + bytes(8)).replace(b"\x59" + time, b"\x59" + bytes(8))


def test_a_time_that_is_said_to_be_none_is_left_out() -> None:
    """As the general path leaves it out."""
    lines, told = taught(), timeless(103)
    assert lines.to_json(LOGS, told) == to_json(LOGS, told)
    assert lines.known == 2 * LEAST - 1


def _sized(data: bytes) -> bytes:
    size, low = len(data), bytearray()
    while size > 0x7F:
        low.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(low) + bytes([size]) + data


def said(write: Callable[[Signal, bytes], bytes], told: bytes, signal: Signal = LOGS) -> bytes | str:
    """A line, or the error."""
    try:
        return write(signal, told)
    except MalformedBody as error:
        return str(error)


def test_frames_of_every_kind_are_written_as_ever() -> None:
    """Schemas, scopes without a name, several producers, nothing at all."""
    lines = taught()
    plain = body(*(gate(100 + n) for n in range(LEAST)))
    frames = [plain, plain + plain, b"", b"\x0a\x00", plain + b"\x12\x00"]
    for where, url in (("resource", "https://x/1"), ("scope", 'https://"x"/1'), ("scope", "https://é")):
        message = ExportLogsServiceRequest.FromString(plain)
        resource = message.resource_logs[0]
        (resource if where == "resource" else resource.scope_logs[0]).schema_url = url
        frames.append(message.SerializeToString())
    message = ExportLogsServiceRequest.FromString(plain)
    message.resource_logs[0].ClearField("resource")
    message.resource_logs[0].scope_logs[0].ClearField("scope")
    frames.append(message.SerializeToString())
    for told in frames:
        assert said(lines.to_json, told) == said(to_json, told)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages(LogRecord.DESCRIPTOR), min_size=1, max_size=4))
def test_records_of_any_kind_are_written_as_ever(records: list[LogRecord]) -> None:
    """Whatever they hold, once they came often enough to be known."""
    lines, message = LineTemplates(), ExportLogsServiceRequest()
    message.resource_logs.add().scope_logs.add().log_records.extend(records * LEAST)
    told = message.SerializeToString()
    general = to_json(LOGS, told)
    for _ in range(LEARN_AT + 1):
        assert lines.to_json(LOGS, told) == general
    assert from_json(LOGS, general) == told


@pytest.mark.parametrize("seed", range(8))
def test_streams_of_clients_are_written_as_ever(seed: int) -> None:
    """Requests of several shapes, some changed by hand; records of each come many at a time."""
    lines, dice = LineTemplates(), random.Random(seed)  # noqa: S311 the same each time
    for signal, case in stream(seed, 60):
        told = _many(case, dice) if signal is LOGS else case
        assert said(lines.to_json, told, signal) == said(to_json, told, signal)


def _many(told: bytes, dice: random.Random) -> bytes:
    """The same request with its records over and over."""
    try:
        message = ExportLogsServiceRequest.FromString(told)
    except DecodeError:
        return told
    for resource in message.resource_logs:
        for scope in resource.scope_logs:
            kept = list(scope.log_records)
            scope.log_records.extend(dice.choices(kept, k=3 * LEAST) if kept else [])
    return message.SerializeToString()


def test_large_records_and_requests_and_other_signals_are_not_learned() -> None:
    """Their lines are those of the general path."""
    lines = LineTemplates()
    large = body(*(gate(100 + n, seed_id="x" * LARGEST) for n in range(LEAST)))
    whole = body(gate(100, seed_id="x" * LARGEST_BYTES))
    for told in (large, whole):
        for _ in range(LEARN_AT + 1):
            assert lines.to_json(LOGS, told) == to_json(LOGS, told)
    assert not lines.known
    assert lines.to_json(Signal.TRACES, b"") == b"{}"
    with pytest.raises(MalformedBody):
        lines.to_json(Signal.METRICS, b"\xff")

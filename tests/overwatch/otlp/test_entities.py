"""Entity events: reports that promise more, ends that are told, and ends that are noticed."""

from typing import Final

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from overwatch.events import EnvsRemoved, Event, LogLine, RunFinished
from overwatch.journal import Signal
from overwatch.otlp import entities
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from overwatch.otlp.value import Value, to_pairs
from tests.fakes import START_NS

S: Final = 1_000_000_000


def said(at_s: float, name: str, run: str = "r", **attributes: Value) -> bytes:
    """One event; underscores in the names of attributes are dots."""
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": run}))
    told = {key.replace("_", "."): value for key, value in attributes.items()}
    named.scope_logs.add().log_records.add(
        time_unix_nano=START_NS + int(at_s * S), event_name=name, attributes=to_pairs(told)
    )
    return message.SerializeToString()


def report(at_s: float, env_id: int, interval: Value = 10) -> bytes:
    """A report of an env."""
    ids = {"overwatch.env.id": env_id}
    return said(
        at_s, "entity.state", entity_type="overwatch.env", entity_id=ids, entity_report_interval=interval
    )


def heard(bodies: list[bytes], totals: Totals | None = None) -> list[Event]:
    """What requests come to, one after another."""
    known = totals or Totals()
    return [record.event for body in bodies for record in read(body, known).records]


def read(body: bytes, totals: Totals) -> Decoded:
    """What one request comes to."""
    return settle(decode(Signal.LOGS, body), totals)


def gone(events: list[Event]) -> list[tuple[int, list[int]]]:
    """(second, envs) of each removal."""
    return [
        ((one.at - START_NS) // S, one.env_id.array().tolist())
        for one in events
        if isinstance(one, EnvsRemoved)
    ]


def test_an_env_whose_reports_stop_is_removed() -> None:
    """Three intervals without a report, by its producer's clock, noticed when its run speaks."""
    bodies = [report(1, 7), report(1, 8), report(11, 8), said(31, "app.said"), said(32, "app.said")]

    assert gone(heard(bodies)) == [(31, [7])]


def test_reports_that_come_keep_an_env() -> None:
    """Late and repeated reports end nothing."""
    bodies = [report(at, 7) for at in (1, 11, 21, 11, 31)] + [said(60, "app.said")]

    assert gone(heard(bodies)) == []


def test_a_run_does_not_end_the_envs_of_another() -> None:
    """Each run has a clock of its own."""
    assert gone(heard([report(1, 7), said(1000, "app.said", run="other")])) == []


def test_an_env_that_was_deleted_is_waited_for_no_longer() -> None:
    """The told end is the only one; one that reports again is waited for again."""
    deleted = said(5, "entity.delete", entity_type="overwatch.env", entity_id={"overwatch.env.id": 7})
    bodies = [report(1, 7), deleted, said(100, "app.said"), report(101, 7), said(200, "app.said")]

    assert gone(heard(bodies)) == [(5, [7]), (131, [7])]


def test_an_env_without_an_interval_promises_nothing() -> None:
    """0 or nothing takes the promise back."""
    bodies = [report(1, 7), report(2, 7, interval=0), said(1000, "app.said")]

    assert gone(heard(bodies)) == []


@pytest.mark.parametrize("interval", [-1, "10", 1.5, True, 1 << 40])
def test_an_interval_that_is_none_is_malformed(interval: Value) -> None:
    """The one record is rejected, with what is wrong."""
    decoded = read(report(1, 7, interval), Totals())

    assert (len(decoded.problems), decoded.records) == (1, ())
    assert "entity.report.interval" in decoded.problems[0].detail


def test_a_run_that_was_deleted_is_over() -> None:
    """The reason is told with it."""
    body = said(9, "entity.delete", entity_type="overwatch.run", entity_delete_reason="budget spent")

    assert heard([body]) == [RunFinished(at=START_NS + 9 * S, outcome="completed", reason="budget spent")]


@pytest.mark.parametrize("kind", ["overwatch.run", "overwatch.slot", "overwatch.gpu"])
def test_reports_of_what_is_known_otherwise_fill_no_feed(kind: str) -> None:
    """A heartbeat is no line of log; a slot's end never ends its env."""
    ids = {"overwatch.env.id": 7, "overwatch.slot.id": "r0c0"}
    names = ["entity.state"] if kind == "overwatch.run" else ["entity.state", "entity.delete"]

    assert heard([said(1, name, entity_type=kind, entity_id=ids) for name in names]) == []


@pytest.mark.parametrize("name", ["entity.state", "entity.delete"])
def test_entities_of_others_are_lines_of_the_feed(name: str) -> None:
    """What nobody here knows is shown as it came."""
    (event,) = heard([said(1, name, entity_type="host", entity_id={"host.id": "h"})])

    assert isinstance(event, LogLine)


def test_promises_are_bounded_and_outlive_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most nothing is waited for; what is, is part of a checkpoint."""
    monkeypatch.setattr(entities, "MAX_ENTITIES", 2)
    totals = Totals()
    heard([report(1, env_id) for env_id in range(5)], totals)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(totals), type=Totals)

    assert (totals.entities.size, again) == (2, totals)
    assert gone(heard([said(100, "app.said")], again)) == [(31, [0]), (31, [1])]
    assert again.entities.size == 0

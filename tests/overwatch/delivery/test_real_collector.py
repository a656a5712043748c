"""The sender and a real collector: full, and with answers that get lost on the way."""

import time
from pathlib import Path

import pytest

from overwatch.collector import Service
from overwatch.events import LogLine, Severity
from overwatch.snapshot import Snapshot, View
from tests.overwatch.collector.running import eventually, fill, http, reported, running
from tests.overwatch.delivery.evil import OK, Call, evil
from tests.overwatch.delivery.waiting import DEADLINE_S, Waiting, request, sending

RUN = "delivered"
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def lines(count: int, first: int = 1) -> list[bytes]:
    """Requests that hold one log line each, numbered."""
    events = [
        LogLine(at=time.time_ns(), severity=Severity.WARNING, message=f"line {number}")
        for number in range(first, first + count)
    ]
    return [reported(RUN, [event], number) for number, event in enumerate(events, start=first)]


def snapshot(service: Service) -> Snapshot | None:
    """The run's latest default snapshot."""
    aggregator = service.context.aggregator
    frame = None if aggregator is None else aggregator.frame
    return None if frame is None else frame.snapshots.get((RUN, View()))


def shown(service: Service) -> list[str]:
    """The lines in the feed."""
    found = snapshot(service)
    return (
        [] if found is None else [entry.message for entry in found.feed if entry.message.startswith("line")]
    )


@pytest.mark.parametrize("env", [{}, GRPC], ids=["http", "grpc"])
def test_a_full_collector_is_left_alone_and_then_gets_everything(tmp_path: Path, env: dict[str, str]) -> None:
    """It asks for two seconds; nothing is lost, nothing comes twice."""
    source = Waiting()
    with running(tmp_path, "exporters.aggregator.journal_size_mib=1") as service:
        hung = fill(service, leave=64)
        where = service.endpoints.otlp_grpc if env else service.endpoints.otlp_http
        with sending(source, str(where), env) as sender:
            for number, body in enumerate(lines(3), start=1):
                source.put(request(number, body))
            assert not sender.drain(0.5)
            assert hung.wait(0)
            assert sender.drain(DEADLINE_S)
        assert eventually(lambda: len(shown(service)) >= 3 and shown(service)) == [
            "line 1",
            "line 2",
            "line 3",
        ]


def test_a_request_whose_answer_was_lost_is_stored_once(tmp_path: Path) -> None:
    """A proxy swallows every second answer: the collector sees the same records twice and shows them once."""
    source = Waiting()
    with running(tmp_path) as service:
        requested = iter(range(1000))

        def proxy(call: Call) -> None:
            while (received := call.receive()) is not None:
                url = f"{service.endpoints.otlp_http}{received.path}"
                http(url, received.body, Content_Type="application/x-protobuf")
                if next(requested) % 2 == 0 or not call.emit(OK):
                    return

        with evil(proxy) as between, sending(source, between.endpoint) as sender:
            for number, body in enumerate(lines(5), start=1):
                source.put(request(number, body))
            assert sender.drain(DEADLINE_S)
            assert len(between.requested) > 5
        expected = [f"line {number}" for number in range(1, 6)]
        assert eventually(lambda: len(shown(service)) >= 5 and shown(service)) == expected

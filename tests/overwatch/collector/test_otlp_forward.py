"""The exporters otlp and otlphttp: what was accepted reaches another server, whatever that server does."""

import errno
import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from overwatch.collector import Service
from overwatch.collector.exporters.forward_config import OtlpHttpExporterConfig, QueueConfig, RetryConfig
from overwatch.collector.exporters.forward_queue import Turns
from overwatch.collector.exporters.otlp_forward import OtlpForwarder
from overwatch.journal import DurableJournal, File, Files, Folder, JournalLimits, Lag, Signal
from overwatch.snapshot import View
from tests.overwatch.collector.forwarding import (
    counted,
    dropped,
    eventually,
    forwarding,
    give,
    line,
    points,
    sets,
    spans,
    trouble,
)
from tests.overwatch.collector.running import http, running
from tests.overwatch.delivery.evil import OK, Call, Evil, evil, reply, serving
from tests.overwatch.delivery.test_http import LONG, SLOW
from tests.overwatch.sdk.sink import partial_success

MEMORY = "service.extensions=[health_check, view]"
RUN = "forwarded"


def lines(server: Evil) -> list[str]:
    """The lines that a target received, in order of their coming."""
    found = []
    for requested in server.requested:
        body = gzip.decompress(requested.body) if "content-encoding" in requested.headers else requested.body
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
            found += [one.body.string_value for s in resource.scope_logs for one in s.log_records]
    return found


def numbered(first: int, last: int) -> list[str]:
    """`line <first>` to `line <last>`."""
    return [f"line {number}" for number in range(first, last + 1)]


def shown(service: Service) -> list[str]:
    """The lines in the feed of the run."""
    aggregator = service.context.aggregator
    frame = None if aggregator is None else aggregator.frame
    found = None if frame is None else frame.snapshots.get((RUN, View()))
    return [] if found is None else [entry.message for entry in found.feed]


def busy_until(gate: threading.Event) -> Callable[[Call], None]:
    """A server that takes requests from then on; before, each is to be sent again."""

    def script(call: Call) -> None:
        while call.receive() is not None:
            if not call.emit(OK if gate.is_set() else reply("503 Service Unavailable")):
                return

    return script


@pytest.mark.parametrize("name", ["otlp", "otlphttp"])
def test_all_three_signals_reach_another_collector(name: str, tmp_path: Path) -> None:
    """Each item once, counted at both ends under the collector's names."""
    with running(tmp_path / "end") as end:
        to = end.endpoints.otlp_grpc if name == "otlp" else end.endpoints.otlp_http
        transport = "grpc" if name == "otlp" else "http"
        with forwarding(tmp_path / "mid", to, name=name) as mid:
            for number in range(1, 21):
                give(mid, line(RUN, number))
            give(mid, points(), Signal.METRICS)
            give(mid, spans(), Signal.TRACES)
            for items, expected in (("log_records", 20), ("metric_points", 2), ("spans", 1)):
                accepted = f"otelcol_receiver_accepted_{items}"
                eventually(
                    lambda accepted=accepted, expected=expected: (
                        end.context.tally.get(accepted, receiver="otlp", transport=transport) == expected
                    )
                )
                eventually(
                    lambda items=items, expected=expected: counted(mid, "sent", items, name) == expected
                )
                assert counted(mid, "send_failed", items, name) == 0
        assert eventually(lambda: len(shown(end)) >= 20 and shown(end)[-20:]) == numbered(1, 20)


def test_the_bytes_that_came_are_the_bytes_that_go(tmp_path: Path) -> None:
    """Nothing is decoded and encoded again: fields of newer versions survive; each signal has its path."""
    sent = [(points(), Signal.METRICS), (spans(), Signal.TRACES), (line(RUN, 1), Signal.LOGS)]
    with evil(serving(OK)) as server:
        with forwarding(
            tmp_path, server.endpoint, "exporters.otlphttp.compression=none",
            "exporters.otlphttp.headers={Authorization: Bearer s3cr3t}",
        ) as mid:  # fmt: skip
            for body, signal in sent:
                give(mid, body, signal)
            server.wait(lambda it: len(it.requested) == 3)
        assert {(one.path, one.body) for one in server.requested} == {
            (f"/v1/{signal.value}", body) for body, signal in sent
        }
        assert {one.headers["authorization"] for one in server.requested} == {"Bearer s3cr3t"}


@pytest.mark.parametrize("script", SLOW)
def test_a_slow_target_holds_up_nobody(script: Callable[[Call], None], tmp_path: Path) -> None:
    """Requests are acknowledged and shown while the target hangs; health states it; the journal keeps all."""
    with (
        evil(script) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.timeout=300ms") as mid,
    ):
        for number in range(1, 31):
            give(mid, line(RUN, number))
        assert eventually(lambda: len(shown(mid)) >= 30 and shown(mid)[-30:]) == numbered(1, 30)
        assert eventually(lambda: trouble(mid)).startswith(server.endpoint)
        assert counted(mid, "sent") == counted(mid, "send_failed") == 0


@pytest.mark.parametrize("script", LONG)
def test_an_evil_reply_costs_one_request_and_is_counted(
    script: Callable[[Call], None], tmp_path: Path
) -> None:
    """An endless reply is not read to its end: sent once more or given up, and the next ones arrive."""
    first = threading.Event()

    def once(call: Call) -> None:
        if first.is_set():
            serving(OK)(call)
        else:
            first.set()
            script(call)

    with evil(once) as server, forwarding(tmp_path, server.endpoint) as mid:
        give(mid, line(RUN, 1))
        eventually(lambda: counted(mid, "sent") + counted(mid, "send_failed") == 1)
        give(mid, line(RUN, 2))
        eventually(lambda: counted(mid, "sent") + counted(mid, "send_failed") == 2)
        assert lines(server)[-1] == "line 2"
        assert counted(mid, "send_failed") == dropped(mid, "refused_reply")


def test_a_busy_target_is_left_alone_for_as_long_as_it_asks(tmp_path: Path) -> None:
    """503 with Retry-After, then everything, in order."""
    busy = reply("503 Service Unavailable", "Retry-After: 1")
    with evil(serving(busy, OK)) as server, forwarding(tmp_path, server.endpoint) as mid:
        for number in range(1, 6):
            give(mid, line(RUN, number))
        eventually(lambda: counted(mid, "sent") == 5)
        assert server.stamps[1] - server.stamps[0] >= 1.0
        assert list(dict.fromkeys(lines(server))) == numbered(1, 5)


def test_a_refused_request_is_given_up_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """400 is final for this one, not for others that went with it; the target's words are in the log."""
    gate = threading.Event()

    def script(call: Call) -> None:
        while (requested := call.receive()) is not None:
            gate.wait(20)
            if not call.emit(reply("400 Bad Request") if b"line 7" in requested.body else OK):
                return

    with (
        evil(script) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.compression=none") as mid,
    ):
        for number in range(1, 10):
            give(mid, line(RUN, number))
        gate.set()
        eventually(lambda: counted(mid, "sent") == 8)
        assert counted(mid, "send_failed") == dropped(mid, "refused_400") == 1
        assert lines(server)[-3:] == numbered(7, 9)
        assert trouble(mid) == ""
    assert "1 items" in caplog.text
    assert "HTTP 400" in caplog.text


def test_a_target_that_refuses_everything_is_in_trouble(tmp_path: Path) -> None:
    """One bad request states nothing; one after the other means a wrong role or address."""
    with (
        evil(serving(reply("403 Forbidden"))) as server,
        forwarding(tmp_path, server.endpoint) as mid,
    ):
        for number in range(1, 6):
            give(mid, line(RUN, number))
        assert "refuses" in eventually(lambda: trouble(mid))
        eventually(lambda: dropped(mid, "refused_403") == 5)


def test_a_token_file_of_a_target_is_read_at_each_request(tmp_path: Path) -> None:
    """What was refused with the old token is delivered with the new one, without a restart."""
    file = tmp_path / "token"
    file.write_text("\n")

    def only_the_new_one(call: Call) -> None:
        while (requested := call.receive()) is not None:
            call.emit(OK if requested.headers.get("authorization") == "Bearer new" else reply("401 No"))

    with (
        evil(only_the_new_one) as server,
        forwarding(tmp_path / "data", server.endpoint, f"exporters.otlphttp.token_file={file}") as mid,
    ):
        give(mid, line(RUN, 1))
        assert "401" in eventually(lambda: trouble(mid))
        assert "authorization" not in server.requested[-1].headers
        file.write_text("old\n")
        server.wait(lambda one: one.requested[-1].headers.get("authorization") == "Bearer old")
        file.write_text("new\nold\n")
        eventually(lambda: counted(mid, "sent") == 1)
        assert dropped(mid, "refused_401") == 0
        assert trouble(mid) == ""


def test_what_a_target_keeps_in_part_is_counted(tmp_path: Path) -> None:
    """Of three records it states that it did not keep two."""
    with (
        evil(serving(reply("200 OK", body=partial_success(2)))) as server,
        forwarding(tmp_path, server.endpoint) as mid,
    ):
        give(mid, b"".join(line(RUN, number) for number in (1, 2, 3)))
        eventually(lambda: counted(mid, "sent") == 1)
        assert counted(mid, "send_failed") == dropped(mid, "rejected") == 2


def test_what_waits_together_goes_together(tmp_path: Path) -> None:
    """A backlog is sent in few requests, each the accepted bytes end to end, in order."""
    gate = threading.Event()

    def script(call: Call) -> None:
        while call.receive() is not None:
            gate.wait(20)
            if not call.emit(OK):
                return

    sent = [line(RUN, number) for number in range(1, 41)]
    with (
        evil(script) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.compression=none") as mid,
    ):
        for body in sent:
            give(mid, body)
        gate.set()
        eventually(lambda: counted(mid, "sent") == 40)
        assert len(server.requested) <= 20
        assert b"".join(requested.body for requested in server.requested) == b"".join(sent)


def test_patience_ends_and_is_counted(tmp_path: Path) -> None:
    """After max_elapsed_time a request is given up, with its reason, and the next one is tried."""
    with (
        evil(serving(reply("503 Service Unavailable"))) as server,
        forwarding(
            tmp_path, server.endpoint, "exporters.otlphttp.retry_on_failure.max_elapsed_time=200ms"
        ) as mid,
    ):
        give(mid, line(RUN, 1))
        give(mid, line(RUN, 2))
        eventually(lambda: dropped(mid, "expired") == 2)
        assert counted(mid, "send_failed") == 2
        assert set(lines(server)) == {"line 1", "line 2"}


def test_without_retries_each_request_is_tried_once(tmp_path: Path) -> None:
    """`retry_on_failure.enabled: false`."""
    with (
        evil(serving(reply("503 Service Unavailable"))) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.retry_on_failure.enabled=false") as mid,
    ):
        for number in (1, 2, 3):
            give(mid, line(RUN, number))
        eventually(lambda: dropped(mid, "expired") == 3)
        assert lines(server) == numbered(1, 3)


def test_a_restart_goes_on_where_the_last_life_was(tmp_path: Path) -> None:
    """What a dead target did not take is sent by the next life, what it took is not sent again."""
    with evil(serving(OK)) as server:
        with forwarding(tmp_path, server.endpoint) as mid:
            for number in range(1, 6):
                give(mid, line(RUN, number))
            eventually(lambda: counted(mid, "sent") == 5)
        with forwarding(tmp_path, "http://127.0.0.1:1") as mid:
            for number in range(6, 11):
                give(mid, line(RUN, number))
            eventually(lambda: trouble(mid))
        with forwarding(tmp_path, server.endpoint) as mid:
            give(mid, line(RUN, 11))
            eventually(lambda: counted(mid, "sent") == 6)
        assert lines(server) == numbered(1, 11)


def test_a_new_exporter_begins_with_what_comes(tmp_path: Path) -> None:
    """What was accepted before there was such an exporter is not its business."""
    with running(tmp_path, "extensions.file_storage.durability=fast") as before:
        give(before, line(RUN, 1))
    with evil(serving(OK)) as server, forwarding(tmp_path, server.endpoint) as mid:
        give(mid, line(RUN, 2))
        eventually(lambda: counted(mid, "sent") == 1)
        assert lines(server) == ["line 2"]


def test_a_lost_place_sends_everything_again_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once: damage to the place costs copies, never records."""
    with evil(serving(OK)) as server:
        with forwarding(tmp_path, server.endpoint) as mid:
            give(mid, line(RUN, 1))
            eventually(lambda: counted(mid, "sent") == 1)
        (tmp_path / "journal" / "otlphttp.cursor").write_bytes(b"damaged")
        with forwarding(tmp_path, server.endpoint) as mid:
            give(mid, line(RUN, 2))
            eventually(lambda: counted(mid, "sent") == 2)
        assert lines(server) == ["line 1", "line 1", "line 2"]
    assert "place in the journal is lost" in caplog.text


def test_producers_are_beside_each_other_and_each_in_order(tmp_path: Path) -> None:
    """A request that hangs holds up its own producer alone."""
    held = threading.Event()

    def script(call: Call) -> None:
        while (requested := call.receive()) is not None:
            if b"stuck" in requested.body and not held.is_set():
                held.wait(20)
            if not call.emit(OK):
                return

    with (
        evil(script) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.compression=none") as mid,
    ):
        for number in range(1, 4):
            give(mid, line("stuck", number))
        for number in range(11, 31):
            give(mid, line("free", number))
        eventually(lambda: counted(mid, "sent") == 20)
        assert lines(server) == ["line 1", *numbered(11, 30)] or lines(server)[1:] == numbered(11, 30)
        held.set()
        eventually(lambda: counted(mid, "sent") == 23)
        assert lines(server)[-2:] == numbered(2, 3)


@pytest.mark.parametrize("extensions", [MEMORY, "service.extensions=[file_storage, health_check, view]"])
def test_a_dead_target_costs_the_oldest_when_the_journal_needs_room(
    extensions: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Senders go on; what is given up is counted and logged; the newest arrive in the end."""
    gate = threading.Event()
    with (
        evil(busy_until(gate)) as server,
        forwarding(tmp_path, server.endpoint, extensions, "exporters.aggregator.journal_size_mib=16") as mid,
    ):
        for number in range(1, 401):
            give(mid, line(RUN, number, size=100_000))
        eventually(lambda: dropped(mid, "no_room") > 0)
        gate.set()
        eventually(lambda: counted(mid, "sent") + dropped(mid, "no_room") == 400)
        assert counted(mid, "sent") > 0
        assert "line 400" in lines(server)
        assert counted(mid, "send_failed") + counted(mid, "enqueue_failed") == dropped(mid, "no_room")
    assert "are lost (no_room)" in caplog.text


_QUEUE = QueueConfig()


@contextmanager
def alone(
    folder: Path,
    endpoint: str,
    limits: JournalLimits,
    files: Callable[[int], Files] = Files,
    queue: QueueConfig = _QUEUE,
) -> Iterator[tuple[Service, DurableJournal]]:
    """An exporter of logs with a journal of its own, and the collector that counts for it."""
    with running(folder / "a", MEMORY) as service:
        own = Folder(folder / "j", files)
        journal = DurableJournal(own, time.time_ns, limits)
        context = replace(service.context, journal=journal, exporting=lambda _: frozenset({Signal.LOGS}))
        quick = RetryConfig(initial_interval="20ms", max_interval="50ms")
        exporter = OtlpForwarder(
            OtlpHttpExporterConfig(
                endpoint=endpoint, timeout="300ms", retry_on_failure=quick, sending_queue=queue
            ),
            context,
            "otlphttp",
        )
        exporter.start()
        try:
            yield service, journal
        finally:
            exporter.stop()
            journal.close()
            own.close()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_dead_target_does_not_fill_the_disk(hangs: bool, tmp_path: Path) -> None:  # noqa: FBT001 a table's column
    """What waits on disk is given up at half of its room, oldest first, and no more than is asked for."""
    gate = threading.Event()

    def script(call: Call) -> None:
        while call.receive() is not None:
            if hangs and not gate.is_set():
                gate.wait(20)
            if not call.emit(OK if gate.is_set() else reply("503 Service Unavailable")):
                return

    limits = JournalLimits(held_bytes=64 << 20, disk_bytes=8 << 20, segment_bytes=256 << 10)
    with evil(script) as server, alone(tmp_path, server.endpoint, limits) as (service, journal):
        for number in range(1, 1201):
            journal.append(Signal.LOGS, line(RUN, number, size=10_000))
            eventually(lambda: journal.disk_bytes < 7 << 20)
        lost = eventually(lambda: dropped(service, "no_room"))
        gate.set()
        eventually(lambda: counted(service, "sent") + dropped(service, "no_room") == 1200)
        assert 400 <= lost <= dropped(service, "no_room") <= 1100
        assert numbered(1101, 1200) == lines(server)[-100:]


class NoPlaces(Files):
    """A folder in which no place can be kept while it is full."""

    is_full = True

    def open(self, name: str) -> File:
        """Refuse places."""
        if name.endswith(".cursor") and self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(name)


def test_a_place_that_cannot_be_kept_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses the place: batches go on, health reports it, and it recovers."""
    part = "otlphttp.place"
    with (
        evil(serving(OK)) as server,
        alone(tmp_path, server.endpoint, JournalLimits(), NoPlaces) as (service, journal),
    ):
        journal.append(Signal.LOGS, line(RUN, 1))
        eventually(lambda: counted(service, "sent") == 1)
        assert "No space left" in service.context.health.degraded[part]
        monkeypatch.setattr(NoPlaces, "is_full", False)
        journal.append(Signal.LOGS, line(RUN, 2))
        eventually(lambda: part not in service.context.health.degraded)
        eventually(lambda: counted(service, "sent") == 2)


def queue_share(service: Service, exporter: str) -> float:
    """How full the queue of an exporter is, by the collector's own page."""
    page = http(f"{service.context.urls.get('telemetry')}/metrics").body.decode()
    size, capacity = (
        float(
            re.findall(rf'^otelcol_exporter_queue_{word}{{exporter="{exporter}"}} (\S+)', page, re.MULTILINE)[
                0
            ]
        )
        for word in ("size", "capacity")
    )
    return size / capacity


def test_a_queue_of_so_many_requests_gives_up_what_is_beyond(tmp_path: Path) -> None:
    """`queue_size` is a bound of its own."""
    gate = threading.Event()
    with (
        evil(busy_until(gate)) as server,
        forwarding(tmp_path, server.endpoint, "exporters.otlphttp.sending_queue.queue_size=10") as mid,
    ):
        for number in range(1, 301):
            give(mid, line(RUN, number))
        eventually(lambda: dropped(mid, "queue_full") >= 290)
        # So the alert of a full queue fires before and while the oldest is given up.
        eventually(lambda: queue_share(mid, "otlphttp") >= 1.0)
        gate.set()
        eventually(lambda: counted(mid, "sent") + dropped(mid, "queue_full") == 300)
        assert counted(mid, "enqueue_failed") == dropped(mid, "queue_full")
        assert counted(mid, "sent") <= 10
        assert lines(server)[0] == "line 1"


def test_many_that_come_at_once_are_no_more_than_may_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read of the journal has all of them: the oldest go, as they would one by one."""
    gate, come, real = threading.Event(), list[DurableJournal](), Turns.wait_room

    def wait_room(turns: Turns, timeout_s: float) -> bool:
        has_room = real(turns, timeout_s)
        if has_room and come:
            journal = come.pop()
            for number in range(1, 51):
                journal.append(Signal.LOGS, line(RUN, number))
        return has_room

    monkeypatch.setattr(Turns, "wait_room", wait_room)
    queue = QueueConfig(queue_size=10)
    with (
        evil(busy_until(gate)) as server,
        alone(tmp_path, server.endpoint, JournalLimits(), queue=queue) as (service, journal),
    ):
        come.append(journal)
        eventually(lambda: dropped(service, "queue_full") == 40)
        gate.set()
        eventually(lambda: counted(service, "sent") == 10)
        assert lines(server)[-10:] == numbered(41, 50)


def test_what_waits_in_memory_is_sent_at_the_end_or_counted(tmp_path: Path) -> None:
    """Without a journal on disk a stop sends the rest; what a dead target does not take is counted."""
    with evil(serving(OK)) as server, forwarding(tmp_path / "a", server.endpoint, MEMORY) as mid:
        for number in range(1, 101):
            give(mid, line(RUN, number))
    assert lines(server) == numbered(1, 100)
    with forwarding(tmp_path / "b", "http://127.0.0.1:1", MEMORY) as dead:
        for number in range(1, 11):
            give(dead, line(RUN, number))
        eventually(lambda: trouble(dead))
    assert dropped(dead, "stopped") == 10


def test_a_fault_of_its_own_ends_no_forwarding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody thought of is logged once and counted, and what comes next arrives."""
    faults = iter([RuntimeError("a fault")] * 3)

    def faulty(journal: DurableJournal, name: str) -> Lag:
        for fault in faults:
            raise fault
        return lag(journal, name)

    lag = DurableJournal.lag
    with evil(serving(OK)) as server, forwarding(tmp_path, server.endpoint) as mid:
        monkeypatch.setattr(DurableJournal, "lag", faulty)
        met = "overwatch_exporter_faults"
        eventually(lambda: mid.context.tally.get(met, exporter="otlphttp") == 3)
        give(mid, line(RUN, 1))
        eventually(lambda: counted(mid, "sent") == 1)
    assert caplog.text.count("an error of its own") == 1


def test_health_and_metrics_separate_the_exporter_from_the_receiver(tmp_path: Path) -> None:
    """Both are called `otlp`; only the one whose target is away is unhealthy, and it recovers."""
    with forwarding(tmp_path, "http://127.0.0.1:1", name="otlp") as mid:
        give(mid, line(RUN, 1))
        eventually(lambda: trouble(mid, "otlp"))
        answer = json.loads(http(str(mid.endpoints.health)).body)
        parts = answer["components"]["pipeline:logs"]["components"]
        assert (parts["receiver:otlp"]["healthy"], parts["exporter:otlp"]["healthy"]) == (True, False)
        assert "collector" not in answer["components"]
        page = http(f"{mid.context.urls.get('telemetry')}/metrics").body.decode()
        for name in ("sent_log_records", "send_failed_spans", "enqueue_failed_metric_points"):
            assert f'otelcol_exporter_{name}_total{{exporter="otlp"}} 0.0' in page
        assert 'otelcol_exporter_queue_size{exporter="otlp"}' in page
        assert 'overwatch_exporter_queue_batches{exporter="otlp"}' in page
        assert 'otelcol_exporter_queue_capacity{exporter="otlp"}' in page


def test_two_exporters_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """One target hangs, the other has everything."""

    def hold(call: Call) -> None:
        call.receive()
        call.hold()

    both = [f"service.pipelines.{one}.exporters=[aggregator, otlp, otlphttp]" for one in ("logs", "metrics")]
    with evil(hold) as stuck, evil(serving(OK)) as server:
        settings = sets(
            "otlp",
            stuck.endpoint,
            "exporters.otlp.timeout=300ms",
            f"exporters.otlphttp.endpoint={server.endpoint}",
            *both,
        )
        with running(tmp_path, *settings) as mid:
            for number in range(1, 51):
                give(mid, line(RUN, number))
            eventually(lambda: counted(mid, "sent") == 50)
            assert counted(mid, "sent", name="otlp") == 0
        assert lines(server) == numbered(1, 50)

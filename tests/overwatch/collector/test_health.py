"""Health in otelcol's words: the collector, its pipelines, and each component."""

import ctypes
import errno
import gc
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from overwatch.collector import Service
from overwatch.collector.extensions.health_check import HealthCheckConfig
from overwatch.collector.health import Health, Phase
from overwatch.collector.process import _serve
from overwatch.journal import JournalFullError, Signal
from tests.overwatch.collector.running import config, eventually, fill, http, reported, run_started, running

GRAPH = {
    "extensions": ("extension:view",),
    "pipeline:logs": ("receiver:otlp", "exporter:otlp_file"),
    "pipeline:traces": ("receiver:otlp", "exporter:otlp_file"),
}


def body(health: Health, *, detailed: bool = True) -> Any:
    """The JSON of an answer."""
    return json.loads(health.answer(detailed=detailed)[1])


def states(found: Any) -> dict[str, str]:
    """The status of each component by `section/component`, of sections by their name."""
    flat = {}
    for section, one in found["components"].items():
        flat[section] = one["status"]
        flat |= {f"{section}/{name}": below["status"] for name, below in one["components"].items()}
    return flat


def test_every_component_goes_with_the_collector() -> None:
    """Components start, run and stop with it; only while it runs is it available."""
    health = Health(GRAPH)
    seen = []
    for phase in (Phase.STARTING, Phase.OK, Phase.STOPPING, Phase.STOPPED):
        health.enter(phase)
        seen.append((health.answer()[0], body(health)["healthy"], set(states(body(health)).values())))

    assert seen == [
        (503, False, {"StatusStarting"}),
        (200, True, {"StatusOK"}),
        (503, False, {"StatusStopping"}),
        (503, False, {"StatusStopped"}),
    ]


def test_a_component_in_trouble_is_named_wherever_it_works() -> None:
    """Its pipelines are in trouble too, others are not, and the collector stays available."""
    health = Health(GRAPH)
    health.enter(Phase.OK)
    health.failed("otlp_file", "/data/otlp: No space left on device")
    health.failed("tls", "the certificates of before are kept")
    status, found = health.answer()[0], body(health)

    assert (status, found["status"], found["healthy"]) == (200, "Server available", False)
    assert {name for name, state in states(found).items() if state == "StatusRecoverableError"} == {
        "pipeline:logs",
        "pipeline:logs/exporter:otlp_file",
        "pipeline:traces",
        "pipeline:traces/exporter:otlp_file",
        "collector",
        "collector/collector:tls",
    }
    trouble = found["components"]["pipeline:logs"]["components"]["exporter:otlp_file"]
    assert trouble["error"] == "/data/otlp: No space left on device"
    assert "error" not in found["components"]["pipeline:logs"]

    health.recovered("otlp_file")
    health.recovered("tls")
    assert set(states(body(health)).values()) == {"StatusOK"}


def test_the_time_of_a_state_is_that_of_its_change() -> None:
    """Reporting the same again does not make it new."""
    health = Health(GRAPH)
    health.enter(Phase.OK)
    health.failed("view", "once")
    first = body(health)["components"]["extensions"]
    health.failed("view", "again")
    health.enter(Phase.OK)
    second = body(health)["components"]["extensions"]

    assert first["status_time"] == second["status_time"]
    assert second["components"]["extension:view"]["error"] == "again"


def test_every_part_of_the_configuration_is_there(tmp_path: Path) -> None:
    """Pipelines and extensions with their components; errors are for those who may read."""
    guarded = "service.security.tokens.read.token=re-1"
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(tmp_path, guarded) as service:
        url = str(service.endpoints.health)
        eventually(lambda: service.context.health.degraded)
        hidden = http(url)
        full = http(url, Authorization="Bearer re-1")

    assert hidden.status == full.status == 200
    names = set(states(json.loads(hidden.body)))
    assert {
        "extensions/extension:file_storage",
        "extensions/extension:health_check",
        "extensions/extension:view",
        "pipeline:logs/receiver:otlp",
        "pipeline:logs/exporter:aggregator",
        "pipeline:metrics/exporter:otlp_file",
        "pipeline:traces/receiver:otlp",
        "pipeline:snapshots/receiver:aggregator",
        "pipeline:snapshots/exporter:prometheus",
    } <= names
    assert b"Not a directory" not in hidden.body
    assert b"Not a directory" in full.body


def test_queues_are_measured_with_their_room(tmp_path: Path) -> None:
    """Each reader of the journal states how much waits for it and how much may."""
    with running(tmp_path, "exporters.aggregator.journal_size_mib=3") as service:
        hung = service.context.journal.cursor("hung")
        request = reported("run-a", [run_started()])
        url = f"{service.endpoints.otlp_http}/v1/logs"
        assert http(url, request, "POST", Content_Type="application/x-protobuf").status == 200
        own = f"{service.context.urls.get('telemetry')}/metrics"

        def queues() -> dict[str, float]:
            lines = http(own).body.decode().splitlines()
            found = [line.rpartition(" ") for line in lines if line.startswith("otelcol_exporter_queue_")]
            return {name.removeprefix("otelcol_exporter_queue_"): float(value) for name, _, value in found}

        def drained() -> dict[str, float] | None:
            now = queues()
            return (
                now if now['size{exporter="aggregator"}'] == now['size{exporter="otlp_file"}'] == 0 else None
            )

        found = eventually(drained)
        page = http(own).body
        hung.wait(0)
        after = queues()

    assert found['size{exporter="hung"}'] == len(request)
    assert {value for name, value in found.items() if name.startswith("capacity")} == {3 << 20}
    assert after['size{exporter="hung"}'] == 0
    assert b'target_info{service_name="overwatch",service_version=' in page


def test_trouble_makes_the_collector_unavailable_for_who_asks_so() -> None:
    """Once it has lasted as long as the asker is patient, and no longer than it lasts."""
    health = Health(GRAPH)
    health.enter(Phase.OK)
    assert health.answer(patience_s=0)[0] == 200
    health.failed("otlp_file", "no room")

    assert [health.answer(patience_s=patience)[0] for patience in (None, 3600, 0)] == [200, 200, 503]
    assert (
        body(health)["components"]["pipeline:logs"]["components"]["exporter:otlp_file"]["error"] == "no room"
    )
    health.recovered("otlp_file")
    assert health.answer(patience_s=0)[0] == 200


def test_a_component_that_ended_makes_the_collector_unavailable_for_good() -> None:
    """While the collector is to work, also for who counts no component; no word of recovery helps."""
    health, going_on = Health(GRAPH), True
    health.watch("otlp_file", lambda: going_on)
    health.failed("otlp_file", "no room")
    going_on = False
    assert states(body(health))["pipeline:logs/exporter:otlp_file"] == "StatusRecoverableError"
    health.enter(Phase.OK)
    answers = [health.answer()[0]]
    health.recovered("otlp_file")
    health.failed("otlp_file", "no room")
    answers.append(health.answer()[0])

    assert answers == [503, 503]
    assert states(body(health))["pipeline:logs/exporter:otlp_file"] == "StatusPermanentError"
    assert health.degraded == {"otlp_file": "it ended by an error of ours; restart"}
    health.enter(Phase.STOPPING)
    assert "StatusPermanentError" not in states(body(health)).values()


@pytest.mark.parametrize("name", ["aggregator", "journal", "otlp_file", "snapshots"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_noticed_by_the_next_probe(tmp_path: Path, name: str) -> None:
    """Whichever of them an error of ours ends, the collector is not reported as well."""
    with running(tmp_path) as service:
        url = str(service.endpoints.health)
        assert http(url).status == 200
        thread = _end(name)
        service.context.journal.submit(Signal.LOGS, reported("run-a", [run_started()]))
        thread.join(10)
        probed = http(url)

    assert probed.status == 503
    assert name in str(states(json.loads(probed.body)))


@pytest.mark.parametrize("name", ["aggregator", "journal"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_process_ends_with_a_part_that_only_a_restart_brings_back(tmp_path: Path, name: str) -> None:
    """Whoever started it starts it again, and it goes on from its journal; nobody has to look."""
    service = Service(config(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(_serve, service, SimpleQueue())
        try:
            assert eventually(lambda: service.context.health.phase is Phase.OK)
            _end(name)
            service.context.journal.submit(Signal.LOGS, reported("run-a", [run_started()]))
            assert serving.result(30) == 3
        finally:
            gc.unfreeze()
    with running(tmp_path) as again:
        assert again.context.health.ended == []


def _end(name: str) -> threading.Thread:
    """A thread that an error ends, with what it does next."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    ended = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    )
    assert ended == 1
    return thread


def test_overload_is_reported_and_unavailable_where_that_is_asked(tmp_path: Path) -> None:
    """While senders are asked to retry the receiver is in trouble; 503 only by the setting."""
    counted = (
        "extensions.health_check.component_health={include_recoverable_errors: true, recovery_duration_s: 0}"
    )
    for setting, status in (((), 200), ((counted,), 503)):
        with running(tmp_path / str(status), *setting) as service:
            url = str(service.endpoints.health)
            service.context.intake.heed(lambda: 60.0)
            overloaded = http(url)
            service.context.intake.heed(lambda: 0.0)
            after = http(url)

        assert (overloaded.status, after.status) == (status, 200)
        receiver = json.loads(overloaded.body)["components"]["pipeline:logs"]["components"]["receiver:otlp"]
        assert (receiver["status"], "60.0 s" in receiver["error"]) == ("StatusRecoverableError", True)
        assert json.loads(after.body)["healthy"]


def probed(service: Service) -> tuple[int, int, int]:
    """What a probe of readiness, one of liveness, and otelcol's path are answered."""
    url = service.endpoints.health
    return (http(f"{url}/ready").status, http(f"{url}/live").status, http(f"{url}/").status)


def why(service: Service) -> str:
    """The error of the receiver on the page of readiness."""
    found = json.loads(http(f"{service.endpoints.health}/ready").body)
    return str(found["components"]["pipeline:logs"]["components"]["receiver:otlp"]["error"])


def test_readiness_fails_while_memory_is_beyond_its_limit(tmp_path: Path) -> None:
    """Only readiness fails: a restart would not help."""
    with running(tmp_path, "receivers.otlp.limits.limit_mib=1") as service:
        assert probed(service) == (503, 200, 200)
        assert "MiB of memory are in use" in why(service)


def test_readiness_fails_while_the_journal_is_full(tmp_path: Path) -> None:
    """Readiness comes back once a reader makes room."""
    with running(tmp_path, "exporters.aggregator.journal_size_mib=1") as service:
        assert probed(service) == (200, 200, 200)
        hung = fill(service, leave=100)
        assert probed(service) == (503, 200, 200)
        assert "does not fit" in why(service)
        hung.wait(0)
        assert eventually(lambda: probed(service) == (200, 200, 200))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_takes_again_is_found_without_a_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A pod that is not ready gets no requests, so the journal itself tries the disk."""
    with running(tmp_path) as service:
        with monkeypatch.context() as broken:

            def refused(*_: object) -> int:
                raise OSError(number, os.strerror(number))

            broken.setattr(os, "pwritev", refused)
            with pytest.raises(JournalFullError):
                service.context.journal.append(Signal.TRACES, b"")
            assert probed(service) == (503, 200, 200)
            assert os.strerror(number) in why(service)
        assert eventually(lambda: probed(service) == (200, 200, 200))
        assert json.loads(http(str(service.endpoints.health)).body)["healthy"]


@pytest.mark.parametrize("path", ["/live", "/ready"])
def test_the_paths_of_probes_are_taken(path: str) -> None:
    """The answer of otelcol's shape cannot be put where a probe asks."""
    with pytest.raises(ValueError, match=path):
        HealthCheckConfig(endpoint="127.0.0.1:0", path=path)

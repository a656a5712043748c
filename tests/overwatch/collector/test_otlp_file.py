"""The recording: what lies on disk, that it replays to what was live, and what a failing disk does."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.collector import Service
from overwatch.events import LogLine, Severity
from overwatch.feeds.recording import Recording
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import from_json
from tests.overwatch.collector.running import eventually, http, run_started, running, told, update


def send(service: Service, body: bytes) -> None:
    """Deliver one request."""
    headers = {"Content_Type": "application/x-protobuf"}
    assert http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200


def index(folder: Path) -> list[dict[str, object]]:
    """The lines of the index."""
    return [json.loads(line) for line in (folder / "otlp" / "index.jsonl").read_text().splitlines()]


def test_the_index_points_at_whole_lines(tmp_path: Path) -> None:
    """Header, start, one entry a batch with its exact bytes, and the last tick."""
    bodies = [told("run-a", [run_started()]), told("run-a", [update(0.01)], first_seq=2)]
    with running(tmp_path) as service:
        for body in bodies:
            send(service, body)

    header, start, *entries, end = index(tmp_path)
    lines = (tmp_path / "otlp" / "logs.jsonl").read_bytes()
    assert header == {"overwatch_index": 1, "version": header["version"], "fast_ms": 100, "slow_ms": 1000}
    assert (start["signal"], start["sequence"]) == ("start", 1)
    assert set(start["body"]) == {"version", "pid", "config_digest"}  # type: ignore[call-overload]
    assert [entry["sequence"] for entry in entries] == [2, 3]
    for entry, body in zip(entries, bodies, strict=True):
        offset, length = int(str(entry["offset"])), int(str(entry["length"]))
        line = lines[offset : offset + length]
        assert lines[offset + length : offset + length + 1] == b"\n"
        assert decode(Signal.LOGS, from_json(Signal.LOGS, line)) == decode(Signal.LOGS, body)
    assert int(str(end["end"])) >= int(str(entries[-1]["stamp"]))


def test_a_recording_replays_to_the_snapshots_that_were_live(tmp_path: Path) -> None:
    """The lines of snapshots.jsonl and those of a replay of the OTLP files are the same bytes."""
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started(), update(0.01)]))
        send(service, told("run-b", [run_started(), update(0.05)]))
        eventually(lambda: service.context.aggregator and service.context.aggregator.frame)
        send(service, told("run-a", [update(0.02, 2)], first_seq=3))

    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    replayed = [codec.encode(s) for frame in Recording(tmp_path / "otlp").frames() for s in frame.recorded]
    assert len(live) >= 2
    assert replayed == live


def test_a_second_life_goes_on_in_the_same_files(tmp_path: Path) -> None:
    """A restart adds its own start; a line that the first life tore is cut off."""
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started()]))
    for name in ("index.jsonl", "logs.jsonl"):
        with (tmp_path / "otlp" / name).open("ab") as file:
            file.write(b'{"torn": ')
    with running(tmp_path) as service:
        send(service, told("run-a", [update(0.01)]))

    kinds = [next(iter(entry)) if "signal" not in entry else entry["signal"] for entry in index(tmp_path)]
    assert kinds == ["overwatch_index", "start", "logs", "end", "start", "logs", "end"]
    recording = Recording(tmp_path / "otlp")
    assert [frame.newest for frame in recording.frames()][-1] == "run-a"
    assert recording.bad_lines == 0


def test_a_folder_that_goes_away_is_made_again(tmp_path: Path) -> None:
    """Removing the recording loses what was in it and nothing after it."""
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started()]))
        eventually(lambda: len(index(tmp_path)) == 3)
        shutil.rmtree(tmp_path / "otlp")
        send(service, told("run-a", [update(0.01)], first_seq=2))

    assert [entry.get("sequence") for entry in index(tmp_path)] == [None, 3, None]


def exporter_state(service: Service) -> str:
    """What health says of the exporter."""
    pipelines = json.loads(http(str(service.endpoints.health)).body)["components"]
    return str(pipelines["pipeline:logs"]["components"]["exporter:otlp_file"]["status"])


def test_a_disk_that_fails_is_said_and_holds_up_nobody(tmp_path: Path) -> None:
    """What cannot be written is shown by health while all else goes on, and is written once it can be."""
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started(), update(0.01)]))
        eventually(lambda: exporter_state(service) == "StatusRecoverableError")
        assert http(str(service.endpoints.health)).status == 200
        metrics = eventually(
            lambda: b"kl_divergence" in (page := http(f"{service.endpoints.metrics}/metrics").body) and page
        )
        assert b'overwatch_policy_kl_divergence{rl_run_id="run-a"} 0.01' in metrics

        (tmp_path / "otlp").unlink()
        send(service, told("run-a", [update(0.02, 2)], first_seq=3))
        eventually(lambda: exporter_state(service) == "StatusOK")

    assert [entry.get("signal") for entry in index(tmp_path)] == [None, "start", "logs", "logs", None]


@pytest.mark.parametrize("extensions", ["[file_storage, health_check, view]", "[health_check, view]"])
def test_a_disk_that_fails_for_too_long_costs_batches_and_they_are_counted(
    tmp_path: Path, extensions: str
) -> None:
    """Once half of the journal's room waits for the disk, batches are given up to make room for senders."""
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(
        tmp_path, "exporters.aggregator.journal_size_mib=1", f"service.extensions={extensions}"
    ) as service:

        def failed() -> float:
            return service.context.tally.get("otelcol_exporter_send_failed_log_records", exporter="otlp_file")

        def deliver(seq: int) -> int:
            line = LogLine(at=seq, severity=Severity.INFO, message="x" * 80_000)
            body = told("run-a", [line], first_seq=seq)
            headers = {"Content_Type": "application/x-protobuf"}
            return http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status

        answers = []
        while not failed() or answers[-1] != 200:
            answers.append(deliver(len(answers)))
            assert len(answers) < 1000

        assert set(answers) <= {200, 503}
        assert failed() <= answers.count(200)


def test_what_a_failing_disk_kept_out_is_written_by_the_next_life(tmp_path: Path) -> None:
    """A collector that stops before the disk works again leaves what waits in the journal."""
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started(), update(0.01)]))
        eventually(lambda: service.context.health.degraded)
    (tmp_path / "otlp").unlink()
    with running(tmp_path):
        pass

    signals = [entry.get("signal") for entry in index(tmp_path)]
    assert signals == [None, "start", "logs", "start", None]


def test_a_life_that_was_killed_is_gone_over_without_a_line_doubled(tmp_path: Path) -> None:
    """What was written after the place that was kept is cut off and written again, byte by byte."""
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started()]))
        eventually((tmp_path / "journal" / "otlp_file.cursor").exists)
    before = (tmp_path / "journal" / "otlp_file.cursor").read_bytes()
    checkpoints = {file: file.read_bytes() for file in (tmp_path / "journal").glob("*.checkpoint")}
    with running(tmp_path) as service:
        for seq in range(2, 12):
            send(service, told("run-a", [update(0.01, seq)], first_seq=seq))
    first = [line for line in index(tmp_path) if "end" not in line]
    lines = (tmp_path / "otlp" / "logs.jsonl").read_bytes()

    (tmp_path / "journal" / "otlp_file.cursor").write_bytes(before)
    for file in (tmp_path / "journal").glob("*.checkpoint"):
        file.unlink()
    for file, data in checkpoints.items():
        file.write_bytes(data)
    with running(tmp_path):
        pass

    again = [line for line in index(tmp_path) if "end" not in line]
    assert again[: len(first)] == first
    assert [line["signal"] for line in again[len(first) :]] == ["start"]
    assert (tmp_path / "otlp" / "logs.jsonl").read_bytes() == lines


def test_lines_of_another_collector_are_not_cut(tmp_path: Path) -> None:
    """A recording that was added to by who has no journal here keeps what was added."""
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started()]))
    with running(tmp_path, "service.extensions=[health_check, view]") as service:
        send(service, told("run-b", [run_started()]))
    with running(tmp_path) as service:
        send(service, told("run-a", [update(0.01)], first_seq=2))

    assert [e["signal"] for e in index(tmp_path) if "signal" in e] == ["start", "logs"] * 3
    assert len((tmp_path / "otlp" / "logs.jsonl").read_bytes().splitlines()) == 3


def test_stamps_rise(tmp_path: Path) -> None:
    """Stamps of batches strictly rise, also for requests that come at once."""
    with running(tmp_path) as service:
        for seq in range(1, 20):
            send(service, told("run-a", [update(0.01, seq)], first_seq=seq))

    stamps = [int(str(entry["stamp"])) for entry in index(tmp_path) if "stamp" in entry]
    assert all(earlier < later for earlier, later in pairwise(stamps))

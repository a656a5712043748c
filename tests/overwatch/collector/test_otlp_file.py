"""The recording: what lies on disk, that it replays to what was live, and what a failing disk does."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

from overwatch import codec
from overwatch.collector import Service
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


def test_a_disk_that_fails_is_said_and_holds_up_nobody(tmp_path: Path) -> None:
    """Batches that cannot be written are counted and shown by health, while all else goes on."""
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(tmp_path) as service:
        send(service, told("run-a", [run_started(), update(0.01)]))
        failed = eventually(
            lambda: service.context.tally.get(
                "otelcol_exporter_send_failed_log_records", exporter="otlp_file"
            )
        )
        health = http(str(service.endpoints.health))
        metrics = eventually(
            lambda: b"kl_divergence" in (page := http(f"{service.endpoints.metrics}/metrics").body) and page
        )

        assert failed == 2
        assert health.status == 200
        assert "otlp_file" in json.loads(health.body)["components"]
        assert b'overwatch_policy_kl_divergence{rl_run_id="run-a"} 0.01' in metrics

        (tmp_path / "otlp").unlink()
        send(service, told("run-a", [update(0.02, 2)], first_seq=3))
        eventually(lambda: not json.loads(http(str(service.endpoints.health)).body)["components"])

    assert [entry.get("signal") for entry in index(tmp_path)] == [None, "logs", None]


def test_stamps_rise(tmp_path: Path) -> None:
    """Stamps of batches strictly rise, also for requests that come at once."""
    with running(tmp_path) as service:
        for seq in range(1, 20):
            send(service, told("run-a", [update(0.01, seq)], first_seq=seq))

    stamps = [int(str(entry["stamp"])) for entry in index(tmp_path) if "stamp" in entry]
    assert all(earlier < later for earlier, later in pairwise(stamps))

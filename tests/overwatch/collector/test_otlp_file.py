"""The recording: what lies on disk, that it replays to what was live, and what a failing disk does."""

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.analyse.audit import AuditConfig, audit
from overwatch.collector import Service
from overwatch.collector.exporters import otlp_file
from overwatch.config import ConfigError
from overwatch.events import EnvCrashed, LogLine, Severity
from overwatch.feeds.recording import Recording, RecordingError
from overwatch.feeds.sources import Segments
from overwatch.journal import Batch, Signal
from overwatch.journal.cursors import CursorFile
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import from_json, to_json
from overwatch.recordings.index import Entry, Located, Raised
from overwatch.serve.recording import RecordingWriter
from overwatch.snapshot import View
from tests import fakes
from tests.overwatch.analyse.reading import every
from tests.overwatch.collector.running import config, eventually, http, reported, run_started, running, update


def send(service: Service, body: bytes) -> None:
    """Deliver one request."""
    headers = {"Content_Type": "application/x-protobuf"}
    assert http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200


def index(folder: Path) -> list[dict[str, object]]:
    """The lines of the index."""
    return [json.loads(line) for line in (folder / "otlp" / "index.jsonl").read_text().splitlines()]


def test_the_index_points_at_whole_lines(tmp_path: Path) -> None:
    """Header, start, one entry a batch with its exact bytes, and the last tick."""
    bodies = [reported("run-a", [run_started()]), reported("run-a", [update(0.01)], first_seq=2)]
    with running(tmp_path) as service:
        for body in bodies:
            send(service, body)

    header, start, *entries, end = index(tmp_path)
    lines = (tmp_path / "otlp" / "logs.jsonl").read_bytes()
    assert header == {"overwatch_index": 1, "version": header["version"], "fast_ms": 100, "slow_ms": 1000}
    assert (start["signal"], start["sequence"]) == ("start", 1)
    assert set(start["body"]) == {"version", "pid", "config_digest", "room"}  # type: ignore[call-overload]
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
        send(service, reported("run-a", [run_started(), update(0.01)]))
        send(service, reported("run-b", [run_started(), update(0.05)]))
        eventually(lambda: service.context.aggregator and service.context.aggregator.frame)
        send(service, reported("run-a", [update(0.02, 2)], first_seq=3))

    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    replayed = [codec.encode(s) for frame in Recording(tmp_path / "otlp").frames() for s in frame.recorded]
    assert len(live) >= 2
    assert replayed == live


def test_a_second_life_goes_on_in_the_same_files(tmp_path: Path) -> None:
    """A restart adds its own start; a line that the first life tore is cut off."""
    with running(tmp_path) as service:
        send(service, reported("run-a", [run_started()]))
    for name in ("index.jsonl", "logs.jsonl"):
        with (tmp_path / "otlp" / name).open("ab") as file:
            file.write(b'{"torn": ')
    with running(tmp_path) as service:
        send(service, reported("run-a", [update(0.01)]))

    kinds = [next(iter(entry)) if "signal" not in entry else entry["signal"] for entry in index(tmp_path)]
    assert kinds == ["overwatch_index", "start", "logs", "end", "start", "logs", "end"]
    recording = Recording(tmp_path / "otlp")
    assert [frame.newest for frame in recording.frames()][-1] == "run-a"
    assert recording.bad_lines == 0


def test_a_folder_that_goes_away_is_made_again(tmp_path: Path) -> None:
    """Removing the recording loses what was in it and nothing after it."""
    with running(tmp_path) as service:
        send(service, reported("run-a", [run_started()]))
        eventually(lambda: len(index(tmp_path)) == 3)
        shutil.rmtree(tmp_path / "otlp")
        send(service, reported("run-a", [update(0.01)], first_seq=2))

    assert [entry.get("sequence") for entry in index(tmp_path)] == [None, 3, None]


def exporter_state(service: Service) -> str:
    """What health reports of the exporter."""
    pipelines = json.loads(http(str(service.endpoints.health)).body)["components"]
    return str(pipelines["pipeline:logs"]["components"]["exporter:otlp_file"]["status"])


def test_a_disk_that_fails_is_reported_and_holds_up_nobody(tmp_path: Path) -> None:
    """What cannot be written is shown by health while all else goes on, and is written once it can be."""
    (tmp_path / "otlp").write_text("a file where the folder should be")
    with running(tmp_path) as service:
        send(service, reported("run-a", [run_started(), update(0.01)]))
        eventually(lambda: exporter_state(service) == "StatusRecoverableError")
        assert http(str(service.endpoints.health)).status == 200
        metrics = eventually(
            lambda: b"kl_divergence" in (page := http(f"{service.endpoints.metrics}/metrics").body) and page
        )
        assert b'overwatch_policy_kl_divergence{rl_run_id="run-a"} 0.01' in metrics

        (tmp_path / "otlp").unlink()
        send(service, reported("run-a", [update(0.02, 2)], first_seq=3))
        eventually(lambda: exporter_state(service) == "StatusOK")

    assert [entry.get("signal") for entry in index(tmp_path)] == [None, "start", "logs", "logs", None]


def test_a_batch_that_no_line_can_be_made_of_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of our own takes its batch, in this life and for the next, and is counted."""
    poison = reported("run-a", [update(0.02, 2)], first_seq=3)

    def made(signal: Signal, body: bytes) -> bytes:
        if body == poison:
            raise ValueError("no line of this")
        return to_json(signal, body)

    monkeypatch.setattr("overwatch.otlp.jsonl.to_json", made)
    for life in range(2):
        with running(tmp_path) as service:
            if life == 0:
                for body in (reported("run-a", [run_started(), update(0.01)]), poison):
                    send(service, body)
            send(service, reported("run-a", [update(0.03, 3 + life)], first_seq=4 + life))
        assert service.context.tally.get("overwatch_exporter_faults", exporter="otlp_file") == 1 - life
        assert "otlp_file" not in service.context.health.degraded

    assert [entry["sequence"] for entry in index(tmp_path) if entry.get("signal") == "logs"] == [2, 4, 6]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "otlp_file: batch 3 is left out; others go on"
    ]


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
            line = LogLine(at=time.time_ns(), severity=Severity.INFO, message="x" * 80_000)
            body = reported("run-a", [line], first_seq=seq)
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
        send(service, reported("run-a", [run_started(), update(0.01)]))
        eventually(lambda: service.context.health.degraded)
    (tmp_path / "otlp").unlink()
    with running(tmp_path):
        pass

    signals = [entry.get("signal") for entry in index(tmp_path)]
    assert signals == [None, "start", "logs", "start", None]


def test_what_came_after_a_batch_that_is_left_is_left_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that stops while the disk refuses one batch loses neither it nor what it takes after it."""
    write, poison = RecordingWriter.write, reported("run-a", [run_started()])

    def refused(writer: RecordingWriter, batch: Batch) -> None:
        if batch.body == poison:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(writer, batch)

    with monkeypatch.context() as patching:
        patching.setattr(RecordingWriter, "write", refused)
        with running(tmp_path) as service:
            send(service, poison)
            eventually(lambda: exporter_state(service) == "StatusRecoverableError")
            for seq in (2, 3):
                send(service, reported("run-a", [update(0.01, seq)], first_seq=seq))
    with running(tmp_path):
        pass

    assert [entry["sequence"] for entry in index(tmp_path) if entry.get("signal") == "logs"] == [2, 3, 4]


@pytest.mark.parametrize("extensions", ["[file_storage, health_check, view]", "[health_check, view]"])
def test_a_disk_that_works_again_at_the_stop_gets_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extensions: str
) -> None:
    """A stop between two attempts is no reason to leave a batch: it is tried once more."""
    write, tried, going = RecordingWriter.write, list[int](), threading.Event()

    def refused_at_first(writer: RecordingWriter, batch: Batch) -> None:
        tried.append(batch.sequence)
        if not going.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(writer, batch)

    monkeypatch.setattr(RecordingWriter, "write", refused_at_first)
    monkeypatch.setattr(otlp_file, "_WAIT_S", 60.0)
    with running(tmp_path, f"service.extensions={extensions}") as service:
        send(service, reported("run-a", [run_started()]))
        eventually(lambda: tried)
        going.set()
        send(service, reported("run-a", [update(0.01)], first_seq=2))

    assert [entry["sequence"] for entry in index(tmp_path) if entry.get("signal") == "logs"] == [2, 3]


def test_a_life_that_was_killed_is_gone_over_without_a_line_doubled(tmp_path: Path) -> None:
    """What was written after the place that was kept is cut off and written again, byte by byte."""
    with running(tmp_path) as service:
        send(service, reported("run-a", [run_started()]))
        eventually((tmp_path / "journal" / "otlp_file.cursor").exists)
    before = (tmp_path / "journal" / "otlp_file.cursor").read_bytes()
    checkpoints = {file: file.read_bytes() for file in (tmp_path / "journal").glob("*.checkpoint")}
    with running(tmp_path) as service:
        for seq in range(2, 12):
            send(service, reported("run-a", [update(0.01, seq)], first_seq=seq))
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
        send(service, reported("run-a", [run_started()]))
    with running(tmp_path, "service.extensions=[health_check, view]") as service:
        send(service, reported("run-b", [run_started()]))
    with running(tmp_path) as service:
        send(service, reported("run-a", [update(0.01)], first_seq=2))

    assert [e["signal"] for e in index(tmp_path) if "signal" in e] == ["start", "logs"] * 3
    assert len((tmp_path / "otlp" / "logs.jsonl").read_bytes().splitlines()) == 3


def test_stamps_rise(tmp_path: Path) -> None:
    """Stamps of batches strictly rise, also for requests that come at once."""
    with running(tmp_path) as service:
        for seq in range(1, 20):
            send(service, reported("run-a", [update(0.01, seq)], first_seq=seq))

    stamps = [int(str(entry["stamp"])) for entry in index(tmp_path) if "stamp" in entry]
    assert all(earlier < later for earlier, later in pairwise(stamps))


ROTATING = (
    "exporters.otlp_file.rotation.max_megabytes=1",
    "exporters.otlp_file.budget.run_mib=8",
    "exporters.otlp_file.rotation.max_minutes=0.001",
)

ROTATING_NS = 60_000_000
PATIENCE_S = 80.0
"""The process that packs gives way: on a busy machine its turn comes late."""


def test_what_was_rotated_is_packed_beside_and_replays_as_it_was_live(tmp_path: Path) -> None:
    """Files rotate by age, another process packs them, and the frames are those that were live."""
    with running(tmp_path, *ROTATING) as service:
        send(service, reported("run-a", [run_started()]))
        seq = 1
        # A file is rotated by the first batch that comes after its time, however many came before.
        while seq < 40 or not list((tmp_path / "otlp").glob("logs-*.jsonl*")):
            seq += 1
            send(service, reported("run-a", [update(0.01, seq)], first_seq=seq))
            eventually(lambda seq=seq: len(all_entries(tmp_path)) >= seq + 1)
        eventually(lambda: list((tmp_path / "otlp").glob("logs-*.jsonl.zst")), PATIENCE_S)
        shown = eventually(
            lambda: b"overwatch_recording_bytes" in (page := own_metrics(service)) and page, PATIENCE_S
        )
        assert b'overwatch_recording_run_budget_bytes{exporter="otlp_file"} 8.388608e+06' in shown
        assert b'overwatch_recording_run_bytes{exporter="otlp_file",rl_run_id="run-a"}' in shown

    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    recording = Recording(tmp_path / "otlp")
    assert [codec.encode(snapshot) for snapshot in recording.recorded()] == live
    assert [e.sequence for e in all_entries(tmp_path) if isinstance(e, Located)] == list(range(2, seq + 2))
    assert recording.bad_batches == recording.bad_lines == 0


JUDGED = ("diagnosis.anomaly.slow_step=1.5",)
STEPS = [0.01 + 0.0001 * env for env in range(15)] + [0.022]
"""Twice the median: slow by these limits, not by those that are shipped."""


def test_a_recording_made_under_a_diagnosis_section_replays_as_it_was_judged(tmp_path: Path) -> None:
    """Rotated, packed and gone on with after a restart, from its index and from the journal."""
    seq = 0
    for life in range(2):
        with running(tmp_path, *ROTATING, *JUDGED) as service:
            pieces = len(list((tmp_path / "otlp").glob("index-*")))
            first = seq
            while seq < first + 20 or len(list((tmp_path / "otlp").glob("index-*"))) <= pieces:
                seq += 2
                stepped = fakes.envs(time.time_ns(), range(16), index=seq, step_time=STEPS)
                send(service, reported("run-a", [update(0.01, seq), stepped], first_seq=seq - 1))
                eventually(lambda want=seq // 2 + 1 + life: len(all_entries(tmp_path)) >= want)
            eventually(lambda: list((tmp_path / "otlp").glob("logs-*.jsonl.zst")), PATIENCE_S)
            assert not life or eventually(lambda: found(service, "run-a") == {"env-stalled"}, PATIENCE_S)

    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    recording = Recording(tmp_path / "otlp")
    assert [codec.encode(snapshot) for snapshot in recording.recorded()] == live
    audited = audit(list(every(tmp_path / "otlp").values()), AuditConfig(fail_on="warning"))
    assert {row.kind for row in (*audited.counted, *audited.passed)} >= {"env-stalled"}
    journal = Recording(tmp_path / "journal", Segments(tmp_path / "journal"))
    (shown,) = list(journal.frames())[-1].snapshots.values()
    assert {env.env_id: env.status for env in shown.envs}[15] == "stalled"
    assert journal.remarks() == ()


def found(service: Service, run_id: str) -> set[str]:
    """Codes of the findings that a run's snapshot shows."""
    frame = service.context.aggregator and service.context.aggregator.frame
    shown = None if frame is None else frame.snapshots.get((run_id, View()))
    return set() if shown is None else {finding.code for finding in shown.findings}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the exporter does to its files and its place, in order."""
    done: list[str] = []
    for kind, name in (
        (RecordingWriter, "go_back"),
        (RecordingWriter, "rotate"),
        (RecordingWriter, "write"),
        (RecordingWriter, "start"),
        (CursorFile, "save"),
    ):
        monkeypatch.setattr(kind, name, noted(done, name, getattr(kind, name)))
    return done


def noted(done: list[str], name: str, method: Callable[..., None]) -> Callable[..., None]:
    """The same method, of which each call is noted; of places only those of the exporter."""

    def noting(it: RecordingWriter | CursorFile, *words: object, **options: object) -> None:
        if isinstance(it, RecordingWriter) or "otlp_file" in it._name:
            done.append(name)
        method(it, *words, **options)

    return noting


def test_the_place_is_kept_between_two_rotations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    """A restart can go back over one rotation, so a backlog that needs several keeps its place at each."""
    gate, write = threading.Event(), RecordingWriter.write

    def written(writer: RecordingWriter, batch: Batch) -> None:
        gate.wait(PATIENCE_S)
        write(writer, batch)

    monkeypatch.setattr(RecordingWriter, "write", written)
    with running(tmp_path, *ROTATING) as service:
        for seq in range(1, 6):
            send(service, reported("run-a", [update(0.01, seq)], first_seq=seq))
            began = time.time_ns()
            eventually(lambda began=began: time.time_ns() - began > ROTATING_NS)
        gate.set()
        eventually(lambda: done.count("rotate") >= 3, PATIENCE_S)

    between = [what for what in done if what in ("rotate", "save")]
    assert ("rotate", "rotate") not in list(pairwise(between))


def test_the_place_is_kept_before_a_new_life_writes(tmp_path: Path, done: list[str]) -> None:
    """Else the rotation of the life before and one of this life would both be ahead of it."""
    with running(tmp_path) as service:
        send(service, reported("run-a", [update(0.01, 1)]))
    done.clear()
    with running(tmp_path) as service:
        send(service, reported("run-a", [update(0.01, 2)], first_seq=2))

    assert done[:3] == ["go_back", "save", "start"]


def own_metrics(service: Service) -> bytes:
    """The collector's own page."""
    return http(f"{service.context.urls.get('telemetry')}/metrics").body


def all_entries(folder: Path) -> list[Entry]:
    """The index over all pieces."""
    try:
        return list(Recording(folder / "otlp").source.entries())
    except (OSError, RecordingError):
        return []


def test_a_finding_is_noted_in_the_index(tmp_path: Path) -> None:
    """Once for each time that it became true, with its run and when that was."""
    with running(tmp_path) as service:
        send(service, reported("run-a", [run_started()]))
        crash = EnvCrashed(at=time.time_ns(), env_id=3, error="segmentation fault")
        send(service, reported("run-a", [crash], first_seq=2))
        eventually(lambda: any(isinstance(entry, Raised) for entry in all_entries(tmp_path)))

    (raised,) = [entry for entry in all_entries(tmp_path) if isinstance(entry, Raised)]
    assert (raised.finding, raised.run, raised.severity) == ("env-crashed:env:3", "run-a", "critical")
    assert raised.since == pytest.approx(crash.at, abs=1000)
    assert raised.tick % 100_000_000 == 0


@pytest.mark.parametrize("kept_before", [True, False])
def test_a_life_that_was_killed_after_a_rotation_is_gone_over_too(tmp_path: Path, kept_before: bool) -> None:  # noqa: FBT001 a case
    """A place that was kept before the rotation cuts the piece; no line is doubled or lost."""
    folder, signals = tmp_path / "otlp", (Signal.LOGS,)
    writer = RecordingWriter(folder, signals)
    bodies = [reported("run-a", [update(0.01, seq)], first_seq=seq) for seq in range(1, 13)]
    batches = [
        Batch(sequence=seq, stamp=1_800_000_000_000_000_000 + seq, signal=Signal.LOGS, body=body)
        for seq, body in enumerate(bodies, 1)
    ]
    for batch in batches[:4]:
        writer.write(batch)
    marks = writer.marks()
    for batch in batches[4:8]:
        writer.write(batch)
    writer.rotate()
    if not kept_before:
        marks = writer.marks()
    for batch in batches[8:]:
        writer.write(batch)
    writer.close()

    again = RecordingWriter(folder, signals)
    position = 5 if kept_before else 9
    again.go_back(marks, position)
    for batch in batches[position - 1 :]:
        again.write(batch)
    again.close()

    recording = Recording(folder)
    (segment,) = recording.segments()
    assert [decode(b.signal, b.body) for b in recording.read(segment.entries)] == [
        decode(b.signal, b.body) for b in batches
    ]
    assert recording.bad_batches == recording.bad_lines == 0


def test_a_rotation_that_was_killed_half_way_is_finished_by_the_next_life(tmp_path: Path) -> None:
    """Whatever was moved when it died, every line is there once and later ones follow."""
    bodies = [reported("run-a", [update(0.01, seq)], first_seq=seq) for seq in (1, 2)]
    batches = [
        Batch(sequence=seq, stamp=1_800_000_000_000_000_000 + seq, signal=Signal.LOGS, body=body)
        for seq, body in enumerate(bodies, 1)
    ]
    for moved in ([], ["logs"], ["logs", "metrics"], ["logs", "metrics", "index"]):
        folder = tmp_path / "-".join(["moved", *moved])
        writer = RecordingWriter(folder, (Signal.LOGS, Signal.METRICS))
        writer.write(batches[0])
        marks = writer.marks()
        writer.close()
        for kind in moved:
            (folder / f"{kind}.jsonl").rename(folder / f"{kind}-000001-000001-0.jsonl")

        again = RecordingWriter(folder, (Signal.LOGS, Signal.METRICS))
        again.go_back(marks, 2)
        again.write(batches[1])
        again.close()
        assert [
            entry.sequence for entry in Recording(folder).source.entries() if isinstance(entry, Located)
        ] == [
            1,
            2,
        ]
        read = Recording(folder)
        assert [b.sequence for s in read.segments() for b in read.read(s.entries)] == [1, 2]
        assert read.bad_batches == 0


def test_a_budget_that_cannot_work_is_refused(tmp_path: Path) -> None:
    """The message names the key and what it is compared with."""
    for words, stated in (
        ("budget.run_mib=100", "less than two times rotation.max_megabytes"),
        ("budget.folder_mib=1", "folder_mib 1 is less than run_mib 2048"),
        ("rotation.max_minutes=0", "max_minutes 0"),
        ("thinning.second_hours=0", "less than whole_minutes"),
    ):
        with pytest.raises(ConfigError, match=stated):
            config(tmp_path, f"exporters.otlp_file.{words}")

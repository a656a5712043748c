"""`overwatch replay`: lines, moments, digests, and what it reports of what it cannot read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from overwatch import codec
from overwatch.cli.replay import idle_line
from overwatch.snapshot import Snapshot, System
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import Written, two_lives
from tests.overwatch.simulate.runs import overwatch, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of a small run."""
    size = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "12", "--run-id", "small")
    return record(tmp_path_factory.mktemp("small"), *size, "--fault", "crash-storm@4")


def _snapshots(text: str) -> list[Snapshot]:
    return [codec.decode(line.encode()) for line in text.splitlines()]


def test_the_recorded_lines_are_printed(folder: Path) -> None:
    """Byte for byte what was written live, from the folder or from the one with the index."""
    live = (folder / "snapshots.jsonl").read_text()

    for path in (folder, folder / "otlp"):
        result = overwatch("replay", path, "--format", "json")
        assert (result.exit_code, result.stdout, result.stderr) == (0, live, "")


@pytest.mark.parametrize("more", [(), ("--run", "small")])
def test_the_first_snapshot_at_an_update(folder: Path, more: tuple[str, ...]) -> None:
    """That of the recording itself, from batches and from snapshots; by a run's name too."""
    recorded = _snapshots((folder / "snapshots.jsonl").read_text())
    for update in (1, 7):
        wanted = next(one for one in recorded if one.run.update is not None and one.run.update >= update)
        for path in (folder, folder / "snapshots.jsonl"):
            shown = _snapshots(overwatch("replay", path, "--update", str(update), *more).stdout)
            assert shown == [wanted]


def test_an_update_of_the_newest_run_where_there_are_several(folder: Path, tmp_path: Path) -> None:
    """Without `--run` the run that was recorded last; with it that run, and no update of another."""
    lines = (folder / "snapshots.jsonl").read_text().splitlines()
    older = [line.replace('"small"', '"older"') for line in lines if "1767225612" not in line]
    (tmp_path / "both.jsonl").write_text("\n".join([*older, *lines]) + "\n")

    (newest,) = _snapshots(overwatch("replay", tmp_path / "both.jsonl", "--update", "3").stdout)
    (named,) = _snapshots(
        overwatch("replay", tmp_path / "both.jsonl", "--update", "3", "--run", "older").stdout
    )
    assert (newest.run.run_id, named.run.run_id) == ("small", "older")
    assert newest.run.update == named.run.update == 3


def test_one_line_every_so_many_seconds(folder: Path) -> None:
    """Each is the recorded line of its second."""
    shown = _snapshots(overwatch("replay", folder, "--every", "3").stdout)
    recorded = {s.time: s for s in _snapshots((folder / "snapshots.jsonl").read_text())}
    start = min(recorded) - 1

    assert [round(s.time - start) for s in shown] == [3, 6, 9, 12]
    assert all(codec.encode(s) == codec.encode(recorded[s.time]) for s in shown)


def test_the_snapshot_at_a_second(folder: Path) -> None:
    """One line, of the last tick at or before it."""
    shown = _snapshots(overwatch("replay", folder, "--at", "7.25").stdout)
    start = _snapshots((folder / "snapshots.jsonl").read_text())[0].time - 1

    assert [round(s.time - start, 3) for s in shown] == [7.2]


def test_the_gap_between_two_lives_is_not_shown_again_and_again(tmp_path: Path) -> None:
    """Over a gap the last snapshot before it is printed once."""
    times = [s.time for s in _snapshots(overwatch("replay", two_lives(tmp_path), "--every", "1").stdout)]

    assert times == sorted(set(times))


def test_a_run_is_picked(folder: Path) -> None:
    """Its lines alone; of a run that is not there nothing, with exit code 1."""
    assert overwatch("replay", folder, "--run", "small").stdout == (folder / "snapshots.jsonl").read_text()
    for more in ((), ("--every", "2"), ("--at", "5")):
        result = overwatch("replay", folder, "--run", "other", *more)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "holds no snapshot of run other" in result.stderr


def test_the_digest_is_the_same_in_every_process(folder: Path) -> None:
    """Twice, and under another order of hashes; another recording has another."""
    first = overwatch("replay", folder, "--digest").stdout
    others = {
        subprocess.run(
            [sys.executable, "-m", "overwatch.cli", "replay", str(folder), "--digest"],
            check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "4242")
    }  # fmt: skip

    assert len(first.strip()) == 64
    assert others == {first} == {overwatch("replay", folder, "--digest").stdout}


def test_the_digest_distinguishes_recordings(folder: Path, tmp_path: Path) -> None:
    """One update more is another digest."""
    written = Written(tmp_path)
    written.start()
    written.update(0.5)
    written.end(2.0)
    written.close()

    assert overwatch("replay", tmp_path, "--digest").stdout != overwatch("replay", folder, "--digest").stdout


def test_what_cannot_be_read_is_counted_on_stderr(tmp_path: Path) -> None:
    """A torn tail: the lines before it on stdout, the count on stderr, exit code 0."""
    folder = two_lives(tmp_path)
    for name, cut in (("index.jsonl", 10), ("logs.jsonl", 60)):
        (folder / name).write_bytes((folder / name).read_bytes()[:-cut])
    result = overwatch("replay", folder)

    assert result.exit_code == 0
    assert len(_snapshots(result.stdout)) >= 8
    assert "1 index lines and 1 batches could not be read" in result.stderr


def test_a_folder_that_is_no_recording_is_exit_code_one(tmp_path: Path) -> None:
    """The message states what was looked for."""
    for words in ((), ("--digest",), ("--every", "1")):
        result = overwatch("replay", tmp_path, *words)
        assert result.exit_code == 1
        assert "holds nothing that can be replayed" in result.stderr


def test_a_recording_with_nothing_readable_is_exit_code_one(tmp_path: Path) -> None:
    """An index of garbage, and one whose data is gone."""
    (tmp_path / "index.jsonl").write_bytes(b"garbage\n" * 3)
    result = overwatch("replay", tmp_path)
    assert result.exit_code == 1
    assert "3 index lines and 0 batches" in result.stderr
    assert "holds no snapshot that can be replayed" in result.stderr

    folder = two_lives(tmp_path / "other")
    (folder / "logs.jsonl").unlink()
    result = overwatch("replay", folder, "--digest")
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("--every", "2", "--at", "3"), "--every and --at exclude one another"),
        (("--digest", "--at", "3"), "--at and --digest exclude one another"),
        (("--digest", "--run", "small"), "leave --run out"),
        (("--at", "3", "--update", "3"), "--at and --update exclude one another"),
        (("--update", "99"), "--update 99 is not in run small, which ends at update 12"),
        (("--at", "14"), "--at 14 is beyond the recording's 13"),
        (("--every", "0"), "0.0 is not in the range"),
        (("--format", "xml"), "'xml' is not"),
    ],
)
def test_bad_usage_is_exit_code_two(folder: Path, words: tuple[str, ...], stated: str) -> None:
    """The message names the value and the fix."""
    result = overwatch("replay", folder, *words)

    assert result.exit_code == 2
    assert stated in " ".join(result.stderr.split())


def test_a_path_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    """Click states it, with exit code 2."""
    assert overwatch("replay", tmp_path / "nowhere").exit_code == 2


def test_why_a_file_shows_nothing_is_counted_by_reason(tmp_path: Path) -> None:
    """Nothing that names a run, nothing that is known, times that cannot be, and spans alone."""
    requests = [otlpfiles.metrics(1), otlpfiles.logs(2), otlpfiles.traces(3), otlpfiles.metrics(4)]
    for request in requests[:3]:
        (named,) = next(iter(request.values()))
        named["resource"] = {}
    gauge = requests[3]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    gauge["gauge"]["dataPoints"][0]["timeUnixNano"] = "1700000000"
    requests[3]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"] = [gauge, {**gauge, "name": "app.x"}]
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines(requests))
    result = overwatch("replay", path)

    assert (result.exit_code, result.stdout) == (1, "")
    for words in (
        "6 items in 4 requests, of which no run is made",
        "1 rejected, no_run: charts/episodic_return",
        "2 name no run (rl.run.id)",
        "1 spans, which are recorded and not shown",
        "has time 1700000000, which is 1970-01-01 in nanoseconds since 1970; it looks like seconds",
    ):
        assert words in result.stderr
    for command in ("report", "audit"):
        reported = overwatch(command, path)
        assert reported.exit_code == 2
        assert "6 items in 4 requests" in reported.stderr


def test_a_run_that_is_not_there_is_answered_with_those_that_are(folder: Path) -> None:
    """By name."""
    assert "it holds small" in overwatch("replay", folder, "--run", "other").stderr


def test_one_request_between_two_seconds_is_shown(tmp_path: Path) -> None:
    """A file of one moment comes to the snapshot at the end of its second."""
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines([otlpfiles.metrics(1.25)]))
    (shown,) = _snapshots(overwatch("replay", path).stdout)

    assert shown.time == otlpfiles.START_S + 2


def test_a_recording_is_summarised_in_a_few_lines(tmp_path: Path) -> None:
    """How it ended, what it got done, its lanes, what rest cost, and what was found on the way."""
    size = ("--gpus", "2", "--envs", "4", "--slots", "0", "--rate", "5", "--seconds", "60")
    folder = record(tmp_path / "run", *size, "--fault", "io-starvation@20", "--run-id", "starved")
    reported = overwatch("replay", folder, "--summary")
    lines = reported.output.splitlines()

    assert reported.exit_code == 0, reported.output
    assert lines[0].startswith("run starved: completed, 60 updates, ")
    assert lines[1].startswith("  warning     completed; ended in io starvation (open ")
    assert lines[2] == "  throughput  40 steps/s"
    assert lines[3].startswith("  gpu0        IO-BOUND: loader 0/8, util ")
    assert "; step p50 " in lines[3]
    assert "; update p50 1.00s p95 1.00s" in lines[3]
    assert lines[5].startswith("  idle ")
    assert " GPU-seconds: io " in lines[5]
    assert lines[6:] == [
        "  warning     io-starvation: io starvation: loader 0/8; 2 lanes wait, open at the end"
    ]


@pytest.mark.parametrize(
    ("idle", "stated"),
    [
        ({}, "0 GPU-seconds"),
        ({"io": 0.0, "sync": 0.0}, "0 GPU-seconds"),
        ({"io": 48.2, "sync": 1100.0, "idle": 0.1}, "1,148 GPU-seconds: sync 1,100, io 48"),
    ],
)
def test_what_rest_cost_is_listed_with_the_largest_first(idle: dict[str, float], stated: str) -> None:
    """What is nothing is not named."""
    assert idle_line(System(idle_gpu_s=idle)) == stated


def test_summary_query_and_audit_agree_on_severity(tmp_path: Path) -> None:
    """A finding that was critical and is a warning at the end counts at its worst everywhere."""
    size = ("--gpus", "1", "--envs", "4", "--slots", "0", "--seconds", "30", "--run-id", "eased")
    folder = record(tmp_path / "run", *size, "--fault", "thermal-throttle@8")
    decode, lines = msgspec.json.Decoder(Snapshot).decode, []
    for line in (folder / "snapshots.jsonl").read_bytes().splitlines():
        snapshot = decode(line)
        eased = tuple(
            msgspec.structs.replace(one, severity="critical" if snapshot.time - one.since < 4 else "warning")
            for one in snapshot.findings
        )
        lines.append(msgspec.json.encode(msgspec.structs.replace(snapshot, findings=eased)) + b"\n")
    eased_file = tmp_path / "eased.jsonl"
    eased_file.write_bytes(b"".join(lines))
    summary = overwatch("replay", eased_file, "--summary").stdout.splitlines()
    answer = overwatch("query", eased_file, "what=finding", "--format", "json").stdout
    found = [json.loads(row) for row in answer.splitlines()]

    assert found
    for row in found:
        assert any(line.split()[:1] == [row["severity"]] and row["text"] in line for line in summary)
    assert {row["severity"] for row in found} == {"critical"}
    assert overwatch("audit", eased_file).exit_code == 1


def test_a_summary_is_one_way_to_print() -> None:
    """It excludes the others."""
    result = overwatch("replay", Path(), "--summary", "--digest")

    assert result.exit_code == 2
    assert "exclude one another" in result.output

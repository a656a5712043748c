"""`overwatch follow` and `overwatch import` from the command line."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch.catalog import Scope
from overwatch.cli import main
from overwatch.events import Measured
from overwatch.feeds.inputs import open_input
from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import eventually, running
from tests.overwatch.sdk.sink import Sink, http_sink

ROWS = [
    {"time/iterations": n, "time/time_elapsed": n * 2, "train/approx_kl": 0.2, "train/entropy_loss": -0.6}
    for n in range(1, 41)
]
FOLLOW = [sys.executable, "-m", "overwatch.cli", "follow"]


def lines_of(rows: list[dict[str, float]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def overwatch(*args: object) -> Result:
    """One command in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def last_of(recording: Path) -> dict[str, Snapshot]:
    """The last snapshot of each run of a recording."""
    return {snapshot.run.run_id: snapshot for snapshot in open_input(recording).recorded()}


def test_an_import_is_a_recording_with_the_files_own_times(tmp_path: Path) -> None:
    """Two runs of a folder: updates, names, findings, an end; report, compare and replay open it."""
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "progress.json").write_text(lines_of(ROWS))
        os.utime(tmp_path / "runs" / name / "progress.json", (1.75e9, 1.75e9))
    result = overwatch("import", tmp_path / "runs", "-o", tmp_path / "out")
    found = last_of(tmp_path / "out")

    assert result.exit_code == 0, result.output
    assert "run runs/a (progress.json): SB3, 2 names known; 40 rows, 40 updates" in result.output
    assert sorted(found) == ["runs/a", "runs/b"]
    run = found["runs/a"].run
    assert (run.update, run.outcome, run.started) == (40, "ended", 1.75e9 - 78)
    assert found["runs/a"].policy["kl_divergence"].status == "critical"
    assert "policy-kl-divergence" in overwatch("replay", tmp_path / "out", "--summary").output
    html = tmp_path / "out.html"
    assert overwatch("report", tmp_path / "out", "--run", "runs/a", "-o", html).exit_code == 0
    assert html.stat().st_size > 10_000


def test_of_the_time_in_which_nothing_was_written_no_recording_is_made(tmp_path: Path) -> None:
    """A run that was resumed a year later, and one of years before: only what was written is replayed."""
    (tmp_path / "runs").mkdir()
    for name, begins in (("resumed", (1.7e9, 1.73e9)), ("older", (1.5e9,))):
        rows = [{"_timestamp": begin + n, "kl_divergence": 0.01} for begin in begins for n in range(30)]
        (tmp_path / "runs" / f"{name}.jsonl").write_text(lines_of(rows))
    assert overwatch("import", tmp_path / "runs", "-o", tmp_path / "out").exit_code == 0
    recorded = list(open_input(tmp_path / "out").recorded())

    assert len(recorded) < 200
    assert not [snapshot for snapshot in recorded if snapshot.findings]
    last = last_of(tmp_path / "out")
    assert {run_id: (one.run.update, one.run.outcome) for run_id, one in last.items()} == {
        "runs/older": (30, "ended"), "runs/resumed": (60, "ended"),
    }  # fmt: skip
    assert {1.5e9 + 20, 1.7e9 + 20, 1.73e9 + 20} <= {snapshot.time for snapshot in recorded}


@pytest.mark.timeout(60)
def test_a_file_that_was_left_long_ago_is_followed_from_now(tmp_path: Path) -> None:
    """Its run is sent with its own times, and no sign of life of the years between."""
    path = tmp_path / "old.jsonl"
    path.write_text(lines_of([{"_timestamp": 1.5e9 + n, "kl_divergence": 0.01} for n in range(30)]))
    os.utime(path, (1.5e9 + 30, 1.5e9 + 30))
    with running(tmp_path / "collector") as service:
        words = ("--run", "x", "--endpoint", service.endpoints.otlp_http, "--until-idle", "1")
        result = overwatch("follow", path, *words)
    assert result.exit_code == 0, result.output
    snapshot = last_of(tmp_path / "collector/otlp")["x"]

    assert (snapshot.run.update, snapshot.run.outcome, snapshot.run.started) == (30, "ended", 1.5e9)


def test_an_import_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Nothing to read, a recording that is there, a bad setting, one name for two runs: status 2 and why."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "two").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "two" / name).write_text("a,b\n1,2\n")
    out = tmp_path / "out"
    empty = overwatch("import", tmp_path / "empty", "-o", out)
    setting = overwatch("import", tmp_path / "two", "-o", out, "--config", "lr")
    named = overwatch("import", tmp_path / "two", "-o", out, "--run", "x")
    pattern = overwatch("import", tmp_path / "two/a.csv", "-o", out, "--pattern", "loss")

    assert [one.exit_code for one in (empty, setting, named, pattern)] == [2, 2, 2, 2]
    assert "has no rows that can be read; in a folder *.wandb, *tfevents*" in empty.output
    assert "--config 'lr' is no setting; write NAME=VALUE" in setting.output
    assert "--run names one run" in named.output
    assert "names no number" in pattern.output
    assert not out.exists()
    assert overwatch("import", tmp_path / "two/a.csv", "-o", out).exit_code == 0
    again = overwatch("import", tmp_path / "two/a.csv", "-o", out)
    assert (again.exit_code, "holds a recording already" in again.output) == (2, True)


def test_what_could_not_be_read_is_printed_once(tmp_path: Path) -> None:
    """Bad lines of a file that has good ones, and rows without a time."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"kl_divergence": 0.1}\nnonsense\nmore\n{"kl_divergence": 0.2}\n{"kl_div')
    output = overwatch("import", path, "-o", tmp_path / "out").output

    assert f"{path}: 2 lines that are no JSON" in output
    assert f"{path}: 1 lines cut off at the end" in output
    assert "rows without a time are a second apart; name their column with --time" in output


def test_a_growing_file_is_followed_to_a_collector_and_into_a_recording(tmp_path: Path) -> None:
    """It is not there at first; lines come one by one; it ends when nothing was written for long."""
    path, grown = tmp_path / "logs/progress.json", threading.Event()

    def write() -> None:
        path.parent.mkdir()
        with path.open("w") as file:
            for row in ROWS:
                file.write(lines_of([row]))
                file.flush()
                grown.wait(0.02)

    with running(tmp_path / "collector") as service:
        endpoint = service.endpoints.otlp_http
        writer = threading.Thread(target=write)
        writer.start()
        result = overwatch(
            "follow", tmp_path / "logs", "--endpoint", endpoint, "--until-idle", 2, "-o", tmp_path / "rec"
        )
        writer.join()

    assert result.exit_code == 0, result.output
    found = last_of(tmp_path / "rec")["logs"]
    assert (found.run.update, found.run.outcome, found.counters["updates"]) == (40, "ended", 40)
    assert "run logs (progress.json): SB3, 2 names known; 40 rows, 40 updates" in result.output
    assert ", 0 not" not in result.output
    assert "records delivered\n" in result.output


def test_standard_input_is_passed_on_and_ends_as_its_program_did(tmp_path: Path) -> None:
    """A program that raises: its lines come out unchanged, and the run is failed with its last words."""
    code = "for n in range(30):\n    print(f'step={n} kl={0.2}', flush=True)\nraise ValueError('diverged')"
    pattern = r"step=(?P<step>\d+) kl=(?P<kl_divergence>\S+)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as program:
        follow = subprocess.run(
            [*FOLLOW, "-", "--pattern", pattern, "--run", "piped", "-o", str(tmp_path / "rec")],
            stdin=program.stdout, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )  # fmt: skip
    run = last_of(tmp_path / "rec")["piped"].run

    assert follow.stdout.splitlines()[0] == "step=0 kl=0.2"
    assert follow.stdout.endswith("ValueError: diverged\n")
    assert (run.outcome, run.update) == ("failed", 30)
    assert follow.returncode == 0


def test_following_ends_with_the_watched_process(tmp_path: Path) -> None:
    """What it wrote last is taken, then the run ends; a process that is none is bad usage."""
    path = tmp_path / "a.jsonl"
    code = f"import time; time.sleep(1); open({str(path)!r}, 'a').write({lines_of(ROWS)!r})"
    path.write_text("")
    with subprocess.Popen([sys.executable, "-c", code]) as program:
        result = overwatch("follow", path, "--pid", program.pid, "--run", "x", "-o", tmp_path / "rec")
    run = last_of(tmp_path / "rec")["x"].run

    assert result.exit_code == 0, result.output
    assert (run.update, run.outcome) == (40, "completed")
    assert overwatch("follow", path, "--pid", 1 << 30, "-o", tmp_path / "no").exit_code == 2


@pytest.mark.parametrize("args", [["-"], ["x", "--endpoint", "nowhere"], ["x", "--format", "parquet"]])
def test_bad_usage_is_named(tmp_path: Path, args: list[str]) -> None:
    """Text without a pattern, an endpoint that is no address, a format that is none."""
    assert overwatch("follow", *args).exit_code == 2


def test_ctrl_c_ends_following_and_its_runs(tmp_path: Path) -> None:
    """The recording is whole, and how the run ends is not known; the status is that of the signal."""
    path = tmp_path / "a.jsonl"
    path.write_text(lines_of(ROWS))
    command = [*FOLLOW, str(path), "--run", "x", "-o", str(tmp_path / "rec")]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        logs = tmp_path / "rec/otlp/logs.jsonl"
        eventually(lambda: logs.exists() and logs.stat().st_size > 1000)
        process.terminate()
        assert process.wait(30) == 128 + 15

    assert last_of(tmp_path / "rec")["x"].run.outcome == "ended"


def follow_of(path: Path, folder: Path, endpoint: str, *more: str) -> subprocess.Popen[str]:
    """`follow` of a file as run `x`, in a process of its own whose memory lies in a folder."""
    command = [*FOLLOW, str(path), "--run", "x", "--endpoint", endpoint, *more]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "OVERWATCH_SPOOL_DIR": str(folder)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def updates_of(sink: Sink) -> list[tuple[str, int | None, int | None]]:
    """Life, sequence number and number of each update that a collector got; what came twice counts once."""
    return list(dict.fromkeys(
        (record.origin.epoch, record.seq, record.event.index)
        for record in sink.records()
        if isinstance(record.event, Measured) and record.event.scope is Scope.POLICY
    ))  # fmt: skip


@pytest.mark.parametrize("rewrites", [False, True], ids=["appended", "renamed"])
def test_following_that_is_killed_and_started_again_loses_and_doubles_nothing(
    tmp_path: Path, *, rewrites: bool
) -> None:
    """It is killed twice while rows come: what was on its way comes again under its numbers."""
    path, total = tmp_path / "a.jsonl", 4800
    rows = [{"update": n, "_timestamp": 1.75e9 + n, "kl_divergence": 0.01} for n in range(1, total + 1)]

    def grow(last: int) -> None:
        part = path.with_suffix(".part")
        part.write_text(lines_of(rows[:last]))
        part.replace(path) if rewrites else path.write_bytes(part.read_bytes())

    with http_sink() as sink:
        for round_ in range(3):
            grow(total * (round_ + 1) // 3)
            last = round_ == 2
            process = follow_of(path, tmp_path, sink.endpoint, *(["--until-idle", "1"] if last else []))
            try:
                if last:
                    assert process.wait(90) == 0, process.communicate()[1]
                else:
                    before = sink.requests
                    eventually(lambda: sink.requests > before, within_s=90)  # noqa: B023 at once
            finally:
                process.kill()
                process.communicate()
        found = updates_of(sink)

    assert [index for *_, index in found] == list(range(1, total + 1))
    assert len({epoch for epoch, *_ in found}) <= 3


@pytest.mark.parametrize("renames", [False, True], ids=["in-place", "renamed"])
@pytest.mark.parametrize(
    ("first", "last"),
    [(3, 60), (49, 60), (50, 60), (30, 50)],
    ids=["head", "one-left", "none-left", "no-more"],
)
def test_rows_that_were_delivered_are_not_sent_again_where_the_oldest_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, last: int, *, renames: bool
) -> None:
    """Rows 0 to 50 were delivered; then `logrotate` left some, or none; more came."""
    monkeypatch.setenv("OVERWATCH_SPOOL_DIR", str(tmp_path))
    path = tmp_path / "a.csv"

    def follow(first: int, last: int) -> None:
        rows = "".join(f"{n},0.5\n" for n in range(first, last))
        part = path.with_suffix(".part") if renames else path
        part.write_text(f"mine,entropy\n{rows}")
        part.replace(path)
        done = overwatch("follow", path, "--run", "x", "--endpoint", sink.endpoint, "--until-idle", "0.3")
        assert done.exit_code == 0, done.output

    with http_sink() as sink:
        follow(0, 50)
        follow(first, last)
        values = [
            event.values["overwatch.custom.mine"].first() for event in sink.events(Measured) if event.index
        ]
        numbers = [index for *_, index in updates_of(sink)]

    assert values == list(range(max(last, 50)))
    assert numbers == list(range(1, max(last, 50) + 1))


def test_what_a_collector_does_not_take_in_time_is_sent_by_the_next_follow(tmp_path: Path) -> None:
    """It is away after a part: following waits, announces that, and the next one delivers the rest once."""
    path = tmp_path / "a.jsonl"
    path.write_text(lines_of([{"update": n, "kl_divergence": 0.01} for n in range(1, 3001)]))
    with http_sink() as sink:
        sink.status = lambda number: 200 if number <= 1 else 503
        away = follow_of(path, tmp_path, sink.endpoint, "--until-idle", "0.5")
        printed = away.communicate(timeout=90)[1]
        part = len(updates_of(sink))
        sink.status = lambda _: 200
        again = follow_of(path, tmp_path, sink.endpoint, "--until-idle", "0.5")
        assert "goes on behind " in again.communicate(timeout=90)[1]
        found = updates_of(sink)

    assert (away.returncode, again.returncode, 0 < part < 3000) == (1, 0, True)
    assert "the collector takes nothing; waiting 10 s for it" in printed
    assert "the same command sends the rest" in printed
    assert [index for *_, index in found] == list(range(1, 3001))

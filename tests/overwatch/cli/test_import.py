"""What `overwatch import` reads of other programs' files: every kind of row, and how a program ended."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from overwatch.catalog import Scope
from overwatch.events import Measured, RunFinished
from overwatch.feeds.inputs import open_input
from overwatch.follow.readers import by_name
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import from_json
from tests.overwatch.cli.test_follow import overwatch

FRAME = '  File "train.py", line 9, in <module>\n    main()\n'
TRACE = f"Traceback (most recent call last):\n{FRAME}"
LOG = "step=1 loss=0.5\nstep=2 loss=0.4\n"
PATTERN = r"step=(?P<step>\d+) loss=(?P<loss>\S+)"
PAIR = r"loss=(?P<loss>\S+) kl=(?P<kl>\S+)"
UNKNOWN = "ended"
SEVERITY = {UNKNOWN: "info", "failed": "critical", "interrupted": "ok"}
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 3, in <module>
  |     raise ExceptionGroup("workers", [ValueError(1)])
  | ExceptionGroup: workers (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
"""
BOX = """\
╭──────── Traceback (most recent call last) ────────╮
│ train.py:3 in <module>                            │
│ ❱ 3 raise ValueError("step=9 loss=9.0")           │
╰───────────────────────────────────────────────────╯
ValueError: step=9 loss=9.0
"""
LOGURU = TRACE.replace("  File", "\n> File") + "    └ <function main>\n"
RANKS = "".join(
    f"[rank{rank}]: {line}\n"
    for rank, error in ((0, "ValueError: bad batch"), (1, "torch.distributed.DistBackendError: NCCL"))
    for line in (*TRACE.splitlines(), error)
)
CANCELLED = "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-01T00:00:00"
FATAL = [
    "Killed",
    "[rank0]: Killed",
    "zsh: killed     python train.py",
    "run.sh: line 3: 12345 Killed                  python train.py",
    "Segmentation fault (core dumped)",
    "./run.sh: line 3: 12345 Bus error             (core dumped) python train.py",
    "Aborted (core dumped)",
    "[12345.678] Out of memory: Killed process 4321 (python) total-vm:1kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.",
    "srun: error: node1: task 0: Exited with exit code 1",
    "srun: error: node1: tasks 0-3: Out Of Memory",
    "mpirun noticed that process rank 0 with PID 0 on node n exited on signal 9 (Killed).",
    "2026-01-01 00:00:00.0: F external/xla/xla/pjrt.cc:12] Check failed: x",
    "Fatal Python error: Segmentation fault",
]
ROOT = """\
Failures:
[0]:
  rank      : 3
  exitcode  : 1 (pid: 9)
Root Cause (first observed failure):
[0]:
  rank      : 1
  exitcode  : -9 (pid: 7)
"""


def rows_of(recording: Path) -> list[dict[str, float]]:
    """Numbers of the policy, by the last part of their names, record by record."""
    return [
        {name.rpartition(".")[2]: column.first() for name, column in event.values.items()}
        for event in events_of(recording)
        if isinstance(event, Measured) and event.scope is Scope.POLICY
    ]


def events_of(recording: Path) -> list[Any]:
    """All events of a recording, in their order."""
    lines = (recording / "otlp/logs.jsonl").read_bytes().splitlines()
    batches = [decode(Signal.LOGS, from_json(Signal.LOGS, line)) for line in lines]
    return [record.event for batch in batches for record in batch.records]


def imported(folder: Path, name: str, text: str, *options: str) -> tuple[Path, str]:
    """The recording of one file, and what was printed."""
    path, out = folder / name, folder / "the out"
    path.write_bytes(text.encode())
    result = overwatch("import", path, "-o", out, "--run", "x", *options)
    assert result.exit_code == 0, result.output
    return out, result.output


@pytest.mark.parametrize(
    ("last", "outcome", "reason"),
    [
        ("", UNKNOWN, "shows no outcome"),
        (f"{TRACE}ValueError: nan", "failed", "ValueError: nan"),
        (f"{TRACE}RuntimeError: CUDA error\nCompile with X to see.\n\n", "failed", "RuntimeError: CUDA"),
        (f"{TRACE}ValueError: bad\nwandb: step=2 loss=0.4\nwandb: synced\n", "failed", "ValueError: bad"),
        (f"{TRACE}KeyError: 1\n\nDuring handling:\n\n{TRACE}my.Error: two\n", "failed", "my.Error: two"),
        (f"{TRACE}KeyboardInterrupt\n", "interrupted", "KeyboardInterrupt"),
        (f"{TRACE}SystemExit: 1\n", "failed", "SystemExit: 1"),
        (f"{TRACE}SystemExit: no data\n", "failed", "SystemExit: no data"),
        (f"{TRACE}SystemExit: 143\n", "interrupted", "SystemExit: 143"),
        (f"{TRACE}SystemExit: 0\n", UNKNOWN, "SystemExit: 0"),
        (f"{TRACE}SystemExit\n", UNKNOWN, "SystemExit"),
        *((f"{line}\n", "failed", line) for line in FATAL),
        ("Terminated\n", "interrupted", "Terminated"),
        (f"{CANCELLED} ***\n", "interrupted", CANCELLED),
        (f"{CANCELLED} ***\n{CANCELLED} DUE TO TIME LIMIT ***\n", "failed", "DUE TO TIME LIMIT"),
        (f"{CANCELLED} DUE TO PREEMPTION ***\n", "failed", "DUE TO PREEMPTION"),
        ("terminate called after throwing an instance of 'E'\n  what():  x\nAborted\n", "failed", "'E'"),
        (f"{TRACE}ValueError: a\nsrun: error: n1: task 0: Exited with exit code 1\n", "failed", "Error: a"),
        ("Killed\nstep=3 loss=0.3\n", UNKNOWN, "shows no outcome"),
        ("Killed episodes were 3\nno process was Killed\n", UNKNOWN, "shows no outcome"),
        ('  File "train.py", line 3\n    x = =\n      ^\nSyntaxError: bad\n', "failed", "SyntaxError: bad"),
        (GROUP, "failed", "ExceptionGroup: workers (1 sub-exception)"),
        (BOX, "failed", "ValueError: step=9 loss=9.0"),
        (f"{LOGURU}\nValueError: bad\n", "failed", "ValueError: bad"),
        (RANKS, "failed", "ValueError: bad batch"),
        (f"{TRACE}ValueError: a\n{TRACE}torch.ChildFailedError: \n", "failed", "ValueError: a"),
        (f"{TRACE}torch.ChildFailedError: \n{ROOT}", "failed", "Error: rank 1, exitcode -9 (pid: 7)"),
        (f"\x1b[31m{TRACE}\x1b[1mValueError\x1b[0m: red\n", "failed", "ValueError: red"),
        (TRACE.replace("T", "12:00:01 ERROR T", 1) + "ValueError: timed\n", "failed", "ValueError: timed"),
        (f"{TRACE}ValueError: caught\nstep=3 loss=0.3\n", UNKNOWN, "shows no outcome"),
        (f"Exception ignored in: <function f>\n{TRACE}OSError: late\n", UNKNOWN, "shows no outcome"),
    ],
)
def test_a_crash_is_never_completed(tmp_path: Path, last: str, outcome: str, reason: str) -> None:
    """What a text shows of its end; what it does not show is not known, and neither passes an audit."""
    out, _ = imported(tmp_path, "train.log", LOG + last, "--pattern", PATTERN)
    (end,) = (event for event in events_of(out) if isinstance(event, RunFinished))
    audit = overwatch("audit", out)
    verdict = list(open_input(out).recorded())[-1].verdict

    assert (end.outcome, reason in (end.reason or "")) == (outcome, True), end
    assert (verdict.severity, "completed" in verdict.text) == (SEVERITY[outcome], False)
    assert audit.exit_code == (0 if outcome == "interrupted" else 1)
    assert 9.0 not in [row.get("total_loss") for row in rows_of(out)]
    allowed = overwatch("audit", out, "--ignore", "end-unknown").exit_code
    assert allowed == (1 if outcome == "failed" else 0)
    assert ("end-unknown" in audit.output) == (outcome == UNKNOWN)


def test_a_wandb_run_without_its_exit_record_has_an_unknown_end(tmp_path: Path) -> None:
    """Its file is cut before the record."""
    whole = (Path(__file__).parent.parent / "follow/recorded/offline.wandb").read_bytes()
    (tmp_path / "run.wandb").write_bytes(whole[:-30])
    overwatch("import", tmp_path / "run.wandb", "-o", tmp_path / "out")

    assert [one.outcome for one in events_of(tmp_path / "out") if isinstance(one, RunFinished)] == [UNKNOWN]


ROWS = [{"total_loss": 0.5, "kl_divergence": 0.01}, {"total_loss": 0.25, "kl_divergence": 0.02}]
HEADER = "step,loss,kl\n"


@pytest.mark.parametrize(
    ("name", "text", "printed"),
    [
        ("a.csv", 'step,loss,text,kl\n1,0.5,"two\nlines",0.01\n2,0.25,"7\r\n9,9,9",0.02\n', "text (2 times)"),
        ("a.csv", 'step,loss,text,kl\n1,0.5,"a ""9""\n9,9",0.01\n2,0.25,"x",0.02\n', "text (2 times)"),
        ("a.csv", "\ufeffstep;loss;kl\r1;0.5;0.01\r2;0.25;0.02\r", ""),
        ("a.tsv", "step\tloss\tkl\r\n1\t0.5\t0.01\r\n2\t0.25\t0.02\r\n", ""),
        ("a.csv", f"{HEADER}1,0.5,0.01\n{HEADER}2,0.25,0.02,\n", ""),
        ("a.csv", f"{HEADER}1,0.5,0.01\nof two,9\n2,0.25,0.02\n", "1 rows that are shorter than the header"),
        ("a.csv", f"{HEADER}1,0.5,0.01\n2,0.25,0.02", ""),
        ("a.csv", f'{HEADER}1,0.5,0.01\r\n2,0.25,"0.02"', ""),
        ("a.csv", f"{HEADER}1,0.5,0.01\n2,0.25,0.02\n3,0.1", "1 rows without an end of line"),
        ("a.csv", "step;loss;kl;lr\n1;0.5;0.01;0,1\n2;0.25;0.02;1,5e-3\n", "2 values with a decimal comma"),
        ("a.csv", f'{HEADER}1,0.5,0.01\n2,0.25,0.02\n3,"9,9\n9,9,9\n', "2 lines of a record that is cut off"),
        ("a.csv", f"# {HEADER}1,0.5,0.01\n2,0.25,0.02\n", ""),
        ("a.csv", f"{HEADER}1,0.5,0.01\nn/a,none,\n2,0.25,0.02\n", "values that are no number"),
        ("a.jsonl", '{"step":"1","loss":"0.5","kl":"0.01"}\n{"step":2,"loss":".25","kl":2e-2}', ""),
        ("a.jsonl", '{"loss":0.5,"kl":0.01,"t":"a\u2028b"}\r\n{"loss":0.25,"kl":0.02,"t":"x"}\n', "t (2 "),
        ("a.jsonl", '[{"step":1,"loss":0.5,"kl":0.01},{"step":2,"loss":0.25,"kl":0.02}]', ""),
        ("a.jsonl", '[\n {"loss":0.5,\n  "kl":0.01},\n {"loss":0.25, "kl":0.02}\n]\n', ""),
        ("a.jsonl", '[{"loss":0.5,"kl":0.01},{"loss":0.25,"kl":0.02},{"l', "1 arrays cut off at the end"),
        ("a b.json", '[{"loss":0.5,"kl":0.01},{"loss":0.25,"kl":0.02}]', "overwatch tui '"),
    ],
)  # fmt: skip
def test_a_row_is_what_the_format_says(tmp_path: Path, name: str, text: str, printed: str) -> None:
    """Two rows, however they are written; what is left out or no number is announced."""
    out, output = imported(tmp_path, name, text)

    assert rows_of(out) == ROWS
    assert printed in output


@pytest.mark.parametrize("rows", [3, 1])
def test_a_csv_without_header_loses_no_row_and_names_none_by_a_number(tmp_path: Path, rows: int) -> None:
    """Columns have numbers; the file is announced with what to do."""
    text = "".join(f"word,{n},{200 * n}.5\n" for n in range(rows))
    out, output = imported(tmp_path, "a.csv", text)

    assert rows_of(out) == [{"column_2": n, "column_3": 200 * n + 0.5} for n in range(rows)]
    assert "1 files without a header: columns have numbers; write a first line with their names" in output


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_record_is_whole_however_a_growing_file_is_read(size: int) -> None:
    """Cells begin and close in different reads, as Python's `csv` writes them."""
    written, kind = io.StringIO(), by_name("a.csv")
    rows = [(n, n / 4, f'a "{n}",\n\r\n9,9,9\n') for n in range(1, 40)]
    csv.writer(written).writerows([("step", "loss", "text"), *rows])
    data, reader = written.getvalue().encode(), kind.make() if kind else None
    assert reader is not None
    found = [row for at in range(0, len(data), size) for row in reader.feed(data[at : at + size])]

    assert [(row.values["step"], row.values["loss"]) for row in found] == [row[:2] for row in rows]
    assert not reader.known.problems


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("step=1, loss=0.5, kl=0.01\nstep=2, loss=0.25, kl=0.02\n", PAIR),
        ("\r 1%|#| [a, loss=0.5 kl=0.01]\r 2%|##| [b, loss=0.25 kl=0.02]", PAIR),
        ("\x1b[1mloss=0.5\x1b[0m kl=0.01\nloss=(0.25) kl=0.02 \n", r"(?P<name>\w+)=(?P<value>\S+)"),
    ],
)
def test_a_named_value_is_read_whatever_is_beside_it(tmp_path: Path, text: str, pattern: str) -> None:
    """Commas, brackets, colours, a bar that is drawn over itself."""
    out, _ = imported(tmp_path, "a.log", text, "--pattern", pattern)

    assert rows_of(out) == ROWS


def test_a_named_value_that_is_no_number_is_counted_and_announced_once(tmp_path: Path) -> None:
    """The other values of its line are taken."""
    text = "loss=0.5 kl=n/a\nloss=0.25 kl=n/a\n"
    out, output = imported(tmp_path, "a.log", text, "--pattern", PAIR)

    assert rows_of(out) == [{"total_loss": 0.5}, {"total_loss": 0.25}]
    assert output.count("2 values of kl that are no number") == 1


def test_the_episodes_of_a_monitor_are_no_updates(tmp_path: Path) -> None:
    """Stable-Baselines3's `monitor.csv`: returns and lengths at their times, beside the run's updates."""
    (tmp_path / "runs/a").mkdir(parents=True)
    monitor = '#{"t_start": 1750000000.5, "env_id": "CartPole-v1"}\nr,l,t\n21.0,21,1.5\n14.0,14,2.5\n'
    (tmp_path / "runs/a/0.monitor.csv").write_text(monitor)
    (tmp_path / "runs/a/progress.csv").write_text("_timestamp,kl_divergence\n1750000002.5,0.01\n")
    output = overwatch("import", tmp_path / "runs", "-o", tmp_path / "out").output
    measured = [one for one in events_of(tmp_path / "out") if isinstance(one, Measured)]

    assert "run runs/a (0.monitor.csv, progress.csv)" in output
    assert "3 rows, 1 updates" in output
    assert [one.at / 1e9 for one in measured if one.scope is Scope.POLICY] == [
        1750000002.0,
        1750000002.5,
        1750000003.0,
    ]
    assert rows_of(tmp_path / "out")[0] == {"return": 21.0, "episode_length": 21.0}


def test_event_files_are_read_as_what_their_writer_meant(tmp_path: Path) -> None:
    """Two writers at once are in order of time; `add_scalars` is one run; no step is an update each."""
    board = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch writes the event files")
    train, other = board.SummaryWriter(str(tmp_path / "both")), board.SummaryWriter(str(tmp_path / "both"))
    for step in range(40):
        train.add_scalar("train/approx_kl", 0.01, step, walltime=1.75e9 + step)
        if step % 10 == 0:
            other.add_scalar("eval/mean_reward", float(step), step, walltime=1.75e9 + step)
    stepless = board.SummaryWriter(str(tmp_path / "stepless"))
    for number in range(5):
        stepless.add_scalar("approx_kl", number / 8, walltime=1.75e9 + number)
        stepless.add_scalar("grad_norm", number / 4, walltime=1.75e9 + number)
    several = board.SummaryWriter(str(tmp_path / "several"))
    several.add_scalar("approx_kl", 0.5, 1)
    several.add_scalars("a/loss", {"train": 0.25, "val": 0.125}, 1)
    for writer in (train, other, stepless, several):
        writer.close()
    for name in ("both", "stepless", "several"):
        result = overwatch("import", tmp_path / name, "-o", tmp_path / f"{name}.out")
        assert result.exit_code == 0, result.output

    evaluated = [
        event.at / 1e9 - 1.75e9 for event in events_of(tmp_path / "both.out")
        if isinstance(event, Measured) and any("eval" in name for name in event.values)
    ]  # fmt: skip
    assert evaluated == [0, 10, 20, 30]
    assert [row["kl_divergence"] for row in rows_of(tmp_path / "stepless.out")] == [n / 8 for n in range(5)]
    numbers = {name: value for row in rows_of(tmp_path / "several.out") for name, value in row.items()}
    assert numbers == {"kl_divergence": 0.5, "a/loss/train": 0.25, "a/loss/val": 0.125}


@pytest.mark.parametrize("name", ["return", "kl_divergence", "ep_rew_mean"])
def test_updates_keep_their_numbers_from_0(tmp_path: Path, name: str) -> None:
    """An export has those that the program wrote."""
    text = "".join(json.dumps({"update": n, name: 0.01 + n / 100}) + "\n" for n in range(6))
    out, _ = imported(tmp_path, "a.jsonl", text)
    overwatch("export", out, "--to", "csv", "-o", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"].startswith("overwatch.policy.")]

    assert sorted({float(row["update"]) for row in rows}) == [0, 1, 2, 3, 4, 5]


def test_names_of_files_steer_no_terminal(tmp_path: Path) -> None:
    """A folder whose name is a sequence that writes the clipboard."""
    folder = tmp_path / "\x1b]52;c;aGk=\x07"
    folder.mkdir()
    (folder / "a.csv").write_text('kl,"text\nrun x: completed"\n0.1,x\n0.2\n')
    output = overwatch("import", folder, "-o", tmp_path / "\x1b]0;out\x07").output

    assert "u001b]52;c;aGk=" in output
    assert "\nrun x: completed" not in output
    assert "\x1b" not in output
    assert "\x07" not in output


def test_runs_behind_many_other_files_are_read(tmp_path: Path) -> None:
    """However many pictures lie between them; hidden folders of libraries too."""
    for name in ("a", "b/.summary/0", "z"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "progress.csv").write_text("kl,loss\n0.1,1\n")
    (tmp_path / "runs/m").mkdir()
    for number in range(4200):
        (tmp_path / "runs/m" / f"{number}.png").touch()
    output = overwatch("import", tmp_path / "runs", "-o", tmp_path / "out").output

    assert [f"run runs/{name} " in output for name in ("a", "b/.summary/0", "z")] == [True, True, True]

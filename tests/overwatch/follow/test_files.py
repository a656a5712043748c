"""Runs below a path, and rows that are given once."""

import os
from pathlib import Path

import pytest

from overwatch.follow.base import Logged
from overwatch.follow.files import File, find
from overwatch.follow.readers import READERS
from overwatch.follow.story import Declared
from overwatch.follow.watched import RECENT_NS, Wanted, Watched

CSV = READERS[3].make
LONG_AGO_NS = 1_000_000_000_000_000_000


def touch(path: Path, text: str = "a,b\n1,2\n") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows_of(file: File) -> list[Logged]:
    """What was added since the last look."""
    found = []
    while file.look():
        found.append(file.take())
    return found


def test_a_folder_is_a_run_and_the_surest_format_is_read(tmp_path: Path) -> None:
    """Event files of one folder are one run, several CSV files one each; `.git` holds none."""
    for name in (
        "x/a/events.out.tfevents.1",
        "x/a/events.out.tfevents.2",
        "x/a/progress.csv",
        "x/b/progress.json",
    ):
        touch(tmp_path / name)
    for name in ("x/c/one.csv", "x/c/two.csv", "x/c/notes.txt", "x/c/params.json"):
        touch(tmp_path / name)
    for name in ("x/.git/three.csv", "x/.summary/four.csv"):
        touch(tmp_path / name)
    found = find(tmp_path / "x")

    assert [(place.run_id, place.kind.name, [file.name for file in place.files]) for place in found] == [
        ("x/.summary", "csv", ["four.csv"]),
        ("x/a", "tensorboard", ["events.out.tfevents.1", "events.out.tfevents.2"]),
        ("x/b", "jsonl", ["progress.json"]),
        ("x/c/one", "csv", ["one.csv"]),
        ("x/c/two", "csv", ["two.csv"]),
    ]
    assert [place.run_id for place in find(tmp_path / "x/a", "csv")] == ["a"]


def test_the_folder_of_hyperparameters_is_part_of_its_run(tmp_path: Path) -> None:
    """PyTorch's `add_hparams` makes one below the run's, named by the time; another number is a run."""
    for name in (
        "a/events.out.tfevents.1",
        "a/1760000000.12/events.out.tfevents.2",
        "a/7/events.out.tfevents.3",
    ):
        touch(tmp_path / name)

    assert [(place.run_id, len(place.files)) for place in find(tmp_path / "a")] == [("a", 2), ("a/7", 1)]


def test_sb3s_csv_that_gets_columns_gives_each_row_once(tmp_path: Path) -> None:
    """SB3 writes the whole file anew when it logs a name that is new."""
    sb3 = pytest.importorskip("stable_baselines3.common.logger", reason="SB3 writes the file")
    path = tmp_path / "progress.csv"
    writer, file, seen = sb3.CSVOutputFormat(str(path)), File(path, CSV), []
    for step in range(6):
        row = {"step": step, "loss": 0.5} if step < 3 else {"step": step, "loss": 0.5, f"new{step}": 1.0}
        writer.write(row, dict.fromkeys(row), step)
        seen += [*rows_of(file), *rows_of(file)]
    writer.close()
    seen += [*rows_of(file), *rows_of(file)]

    assert [row.values["step"] for row in seen] == [0, 1, 2, 3, 4, 5]
    assert seen[-1].values == {"step": 5, "loss": 0.5, "new5": 1.0}


def test_a_program_that_starts_again_writes_new_rows(tmp_path: Path) -> None:
    """Truncated and written anew with other numbers: all of them are given."""
    path = touch(tmp_path / "a.csv", "step,loss\n1,0.5\n2,0.4\n")
    file = File(path, CSV)
    before = rows_of(file)
    path.write_text("step,loss\n1,0.9\n")
    after = [*rows_of(file), *rows_of(file)]

    assert [row.values["loss"] for row in (*before, *after)] == [0.5, 0.4, 0.9]


def test_bytes_in_no_format_are_counted(tmp_path: Path) -> None:
    """A picture that was given by mistake: no row, and a line that states which formats there are."""
    path = tmp_path / "curve"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    file = File(path)

    assert rows_of(file) == []
    assert [line.partition(": ")[2] for line in file.remarks()] == [
        "108 bytes in no format that is read (wandb, tensorboard, jsonl, csv)"
    ]


def test_of_a_folder_old_runs_are_left_until_they_are_written_to(tmp_path: Path) -> None:
    """The newest is followed however old it is, and a run that appears; `is_all` follows each."""
    now = LONG_AGO_NS + 10 * RECENT_NS
    for place, name in enumerate("abc"):
        os.utime(touch(tmp_path / name / "progress.csv"), ns=(0, LONG_AGO_NS + place))
    watched = Watched(Wanted(path=tmp_path, is_all=False))
    everything = Watched(Wanted(path=tmp_path))
    watched.scan(now)
    everything.scan(now)
    assert (sorted(watched.runs), watched.left) == ([f"{tmp_path.name}/c"], 2)
    assert len(everything.runs) == 3

    os.utime(tmp_path / "a/progress.csv", ns=(0, now))
    os.utime(touch(tmp_path / "d/progress.csv"), ns=(0, now))
    watched.scan(now)
    assert sorted(watched.runs) == [f"{tmp_path.name}/{name}" for name in "acd"]


def test_what_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """A path without a file has no run; then it is a folder."""
    watched = Watched(Wanted(path=tmp_path / "logs", declared=Declared()))
    watched.scan(1)
    assert not watched.runs

    touch(tmp_path / "logs/metrics.csv")
    watched.scan(2)
    assert list(watched.runs) == ["logs"]


@pytest.mark.parametrize("window", [None, 5], ids=["all rows", "the newest rows"])
def test_a_file_that_is_replaced_for_each_row_gives_each_row_once(tmp_path: Path, window: int | None) -> None:
    """Written beside and renamed over it, as careful programs do; some write their newest rows only."""
    path, part, seen = tmp_path / "a.csv", tmp_path / "a.part", list[Logged]()
    file, rows = File(path, CSV), [f"{step},{1 / (step + 1):.3f}" for step in range(12)]
    for last in range(1, 13):
        kept = rows[max(0, last - window) if window else 0 : last]
        part.write_text("\n".join(["step,loss", *kept]) + "\n")
        part.replace(path)
        seen += rows_of(file)

    assert [row.values["step"] for row in seen] == list(range(12))


def test_a_file_that_appears_beside_another_is_a_run_and_leaves_the_other_its_name(tmp_path: Path) -> None:
    """A second CSV file, then event files with the same numbers: the first is followed as before."""
    touch(tmp_path / "x/a.csv")
    watched = Watched(Wanted(path=tmp_path / "x"))
    watched.scan(1)
    touch(tmp_path / "x/b.csv")
    watched.scan(2)
    touch(tmp_path / "x/events.out.tfevents.1")
    watched.scan(3)

    assert {run_id: [path.name for path in run.paths] for run_id, run in watched.runs.items()} == {
        "x": ["a.csv"], "x/b": ["b.csv"],
    }  # fmt: skip

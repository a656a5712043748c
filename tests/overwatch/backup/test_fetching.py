"""Runs that were kept are opened from where they lie, by every command that opens a recording."""

import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from overwatch.backup.fetching import fetch
from overwatch.backup.manifest import BackupError
from overwatch.backup.one_run import RunJob, keep
from overwatch.backup.place import save
from overwatch.cli import main
from overwatch.objects.retrying import Patience
from overwatch.objects.store import below, open_store
from tests.overwatch_rl.servers import s3_url
from tests.ports import free_port

RUNS = ("plain", "a/run", "b run")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short recording of each run."""
    top, made = tmp_path_factory.mktemp("recorded"), dict[str, Path]()
    for number, run in enumerate(RUNS):
        made[run] = top / str(number)
        size = ["--seconds", "4", "--gpus", "1", "--envs", "4", "--slots", "2", "--seed", str(number)]
        done = CliRunner().invoke(main, ["simulate", *size, "--run-id", run, "--out", str(made[run])])
        assert done.exit_code == 0, done.output
    return made


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, recordings: dict[str, Path]) -> str:
    """The URL of a place that holds them."""
    if request.param == "file":
        url = f"file://{tmp_path / 'kept'}"
    else:
        url = s3_url(request.getfixturevalue("moto_address"), uuid4().hex)
    for run, recording in recordings.items():
        keep(RunJob(recording=str(recording / "otlp"), run_id=run, place=url))
    return url


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this test alone."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def at(place: str, run: str) -> str:
    """A run below a place."""
    path, mark, options = place.partition("?")
    return f"{path}/{run}{mark}{options}"


def called(*words: str | Path) -> Result:
    """A command, to its end."""
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("run", [*RUNS, "a=2Frun", "b%20run"])
def test_a_run_that_was_kept_replays_as_its_recording_does(
    place: str, run: str, recordings: dict[str, Path], scratch: Path
) -> None:
    """By its id or by the part of the place that it has; nothing is left of it afterwards."""
    of = {"a=2Frun": "a/run", "b%20run": "b run"}.get(run, run)
    there, here = called("replay", at(place, run), "--summary"), called("replay", recordings[of], "--summary")
    assert there.exit_code == 0, there.output
    assert there.stdout == here.stdout
    assert f"run {of}:" in there.stdout
    assert list(scratch.iterdir()) == []


def test_every_command_opens_it(
    place: str, recordings: dict[str, Path], scratch: Path, tmp_path: Path
) -> None:
    """Reports, exports, queries, comparisons and the screen; each leaves nothing behind."""
    url, page, table = at(place, "plain"), tmp_path / "run.html", tmp_path / "run.csv"
    for words in (
        ("report", url, "-o", page),
        ("export", url, "--to", "csv", "-o", table),
        ("query", url, "what=event"),
        ("audit", url, "--max", "1000"),
        ("compare", url, recordings["plain"]),
        ("compare", at(place, "b run"), url),
        ("tui", "--replay", url, "--once", "--format", "json"),
        ("tui", url, "--once"),
        ("tui", "--compare", url, at(place, "b run"), "--once"),
    ):
        done = called(*words)
        assert done.exit_code == 0, (words, done.output)
        assert list(scratch.iterdir()) == [], words
    assert "plain" in page.read_text()
    here = tmp_path / "here.csv"
    assert called("export", recordings["plain"], "--to", "csv", "-o", here).exit_code == 0
    assert table.read_text() == here.read_text()


def test_a_run_that_is_not_there_names_those_that_are(place: str, scratch: Path) -> None:
    """Also the place alone; options of the address, which may be long, are left out."""
    for url in (at(place, "c"), place):
        done = called("replay", url, "--summary")
        assert done.exit_code == 2
        named = f"{url.partition('?')[0]} is no run that was kept; {place.partition('?')[0]} holds"
        assert f"{named} a=2Frun, b=20run, plain: add one to the address" in done.output
    done = called("report", at(place, "c/d/e/f/g/h"))
    assert done.exit_code == 2
    assert "holds no run that was kept and no backup" in done.output
    assert list(scratch.iterdir()) == []


def test_what_is_wrong_with_a_later_argument_leaves_nothing_behind(place: str, scratch: Path) -> None:
    """The first one was fetched by then."""
    done = called("compare", at(place, "plain"), at(place, "c"))
    assert done.exit_code == 2
    done = called("replay", at(place, "plain"), "--every", "no number")
    assert done.exit_code == 2
    assert list(scratch.iterdir()) == []


def test_a_backup_of_a_data_folder_is_opened_too(
    recordings: dict[str, Path], tmp_path: Path, scratch: Path
) -> None:
    """The newest one."""
    save(recordings["plain"], open_store(tmp_path / "place"), 10**18)
    done = called("replay", f"file://{tmp_path / 'place'}", "--summary")
    assert done.exit_code == 0, done.output
    assert "run plain:" in done.stdout
    assert list(scratch.iterdir()) == []


def test_a_run_that_was_altered_is_refused(place: str, scratch: Path) -> None:
    """By name, as by a restore."""
    store = open_store(below(place, "plain"))
    damaged = next(entry.key for entry in store.list("files"))
    store.put(damaged, b"another")
    done = called("replay", at(place, "plain"), "--summary")
    assert done.exit_code == 2
    assert "the backup is not whole" in done.output
    assert damaged in done.output
    assert list(scratch.iterdir()) == []


def test_a_store_that_does_not_answer_names_what_to_look_at(
    moto_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A refused connection, and no credentials anywhere."""
    monkeypatch.setattr("overwatch.backup.fetching._LOOK", Patience(deadline_s=1.0))
    nowhere = s3_url(f"http://127.0.0.1:{free_port()}", "x")
    with pytest.raises(BackupError, match="look at the address, the network and the credentials"):
        fetch(nowhere, tmp_path)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BackupError, match="no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_"):
        fetch(s3_url(moto_address, "x"), tmp_path)

"""What commands on whole recordings share: which recording is meant, and how much is done."""

import os
import re
import sys
from pathlib import Path

import pytest

from overwatch import discovery
from overwatch.cli.recordings import patience
from overwatch.feeds.inputs import open_input
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.simulate.runs import overwatch, record


@pytest.mark.parametrize("is_terminal", [True, False])
def test_how_much_is_read_is_shown_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    """In one line that is gone when it is over."""
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines(otlpfiles.reported(range(1, 9))))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    recorded = open_input(path)
    with patience(path, recorded):
        assert list(recorded.recorded())
    shown = capsys.readouterr().err

    parts = [int(part) for part in re.findall(rf"reading {re.escape(str(path))} +(\d+)%", shown)]
    assert parts == sorted(parts)
    assert (len(parts) >= 8, shown.endswith(" \r")) == (is_terminal, is_terminal)
    assert shown.count("\n") == 0


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine's collector, in which two runs are."""
    monkeypatch.setenv("OVERWATCH_DATA_DIR", str(tmp_path / "data"))
    return _two_runs(tmp_path / "data", ("first", "newest"))


def _two_runs(folder: Path, names: tuple[str, str]) -> Path:
    size = ("--gpus", "1", "--envs", "2", "--slots", "0")
    for seconds, name in enumerate(names, 3):
        record(folder / name, *size, "--seconds", str(seconds), "--run-id", name)
    (folder / "otlp").mkdir()
    first, second = ((folder / name / "snapshots.jsonl").read_text() for name in names)
    (folder / "otlp" / "snapshots.jsonl").write_text(first + second)
    return folder


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (("report", "-o", "-"), "<h1>newest</h1>", "<h1>first</h1>"),
        (("report", "first", "-o", "-"), "<h1>first</h1>", "<h1>newest</h1>"),
        (("audit",), "first, newest", "FAILED"),
        (("audit", "first"), "first", "newest"),
        (("query", "--sql", "select distinct run from metrics order by run"), "newest", "FAILED"),
        (("query", "what=finding"), "nothing in run newest meets 'what=finding'", "first"),
        (("export", "first", "--to", "csv", "-o", "-"), "first,", "newest,"),
        (("compare", "first", "newest"), "B  newest", "A  newest"),
        (("compare", "--run", "first", "--run", "newest"), "B  newest", "A  newest"),
    ],
)
def test_a_run_is_found_by_its_name_where_no_recording_is_named(
    recorded: Path, words: tuple[str, ...], shown: str, hidden: str
) -> None:
    """The newest without; both in the recording of this machine's collector."""
    result = overwatch(*words)

    assert shown in result.stdout + result.stderr
    assert hidden not in result.stdout
    if words[1:2] == ("first",):
        assert "holds no run other; it holds first, newest" in overwatch(words[0], "other", *words[2:]).stderr


def test_a_recording_with_several_runs_is_named_once(recorded: Path) -> None:
    """To compare them."""
    result = overwatch("compare", recorded / "otlp", "--run", "newest", "--run", "first")

    assert (result.exit_code, "A  newest" in result.stdout, "B  first" in result.stdout) == (0, True, True)


def test_where_nothing_was_recorded_a_recording_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 2, with the place that was looked at."""
    monkeypatch.setenv("OVERWATCH_DATA_DIR", str(tmp_path / "data"))
    for words, cause in ((("report",), "no PATH is given"), (("audit", "run-3"), "run-3 is not there")):
        result = overwatch(*words)
        assert result.exit_code == 2
        assert f"{cause}, and no collector has recorded into {tmp_path / 'data' / 'otlp'}" in result.stderr


def test_the_running_collectors_folder_counts(recorded: Path, tmp_path: Path) -> None:
    """Not the one that is used without it: by reports, `locate` and `doctor`, which name both."""
    other = _two_runs(tmp_path / "other", ("a", "b"))
    discovery.write(discovery.Endpoints(pid=os.getpid(), recording=str(other / "otlp"), data=str(other)))
    data, every = overwatch("locate", "data"), overwatch("locate")
    disk = overwatch("doctor", "--only", "disk").stdout
    named = overwatch("doctor", "--only", "disk", "--set", f"extensions.file_storage.directory={recorded}")

    assert "<h1>b</h1>" in overwatch("report", "-o", "-").stdout
    assert data.stdout == f"{other}\n"
    assert (
        f"the running collector (pid {os.getpid()}) writes there; without it, it is {recorded}" in data.stderr
    )
    assert str(other) in every.stdout
    assert f"journal: {recorded}" not in disk
    assert f"writes to {other}: that is looked at, not {recorded}" in disk
    assert re.search(rf"WARN +disk +the running collector .* writes to {other}, this configur", named.stdout)


@pytest.mark.parametrize("words", [("replay",), ("report", "-o", "-"), ("tui", "--replay"), ("compare", "a")])
@pytest.mark.parametrize("url", ["s3://bucket/runs/a?region=x", "file:///tmp/a"])
def test_a_url_is_no_path_of_a_recording(words: tuple[str, ...], url: str) -> None:
    """Named without its options, with what to do; status 2."""
    done = overwatch(*words, url)
    assert done.exit_code == 2
    assert f"{url.partition('?')[0]} is a URL; copy it here with the bucket's tool first" in done.stderr

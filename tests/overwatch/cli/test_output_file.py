"""`-o FILE` of every command: a file is replaced whole, and what is no regular file stays what it is."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from tests.overwatch.simulate.runs import overwatch, record

COMMANDS = {
    "query": ("query", "{run}"),
    "report": ("report", "{run}"),
    "audit": ("audit", "{run}", "--format", "junit"),
    "export to csv": ("export", "{run}", "--to", "csv"),
    "export to openmetrics": ("export", "{run}", "--to", "openmetrics"),
    "export to parquet": ("export", "{run}", "--to", "parquet"),
    "compare": ("compare", "{run}", "{run}", "--format", "json"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshots of a few seconds."""
    size = ("--gpus", "1", "--envs", "2", "--slots", "0", "--seconds", "5")
    return record(tmp_path_factory.mktemp("short") / "run", *size) / "snapshots.jsonl"


def _write(run: Path, name: str, out: Path) -> bytes:
    """Run a command; returns what it writes into a new file elsewhere."""
    words = [word.format(run=run) for word in COMMANDS[name]]
    plain = out.parent.parent / "plain"
    for place in (plain, out):
        result = overwatch(*words, "-o", place)
        assert result.exit_code == 0, result.output
    return plain.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder that has no other file at the end than `out` and `target`."""
    (tmp_path / "here").mkdir()
    yield tmp_path / "here"
    assert {path.name for path in (tmp_path / "here").iterdir()} <= {"out", "target"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_is_written_through(run: Path, folder: Path, name: str) -> None:
    """Its reader gets what a file has."""
    out, received = folder / "out", list[bytes]()
    os.mkfifo(out)
    reader = Thread(target=lambda: received.append(out.read_bytes()))
    reader.start()
    written = _write(run, name, out)
    reader.join(60)

    assert received == [written]
    assert stat.S_ISFIFO(out.lstat().st_mode)


@pytest.mark.skipif(os.getuid() != 0, reason="a device is created by root")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_device_stays_one(run: Path, folder: Path, name: str) -> None:
    """As `/dev/null`, which a whole machine needs."""
    out = folder / "out"
    os.mknod(out, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    _write(run, name, out)

    assert stat.S_ISCHR(out.lstat().st_mode)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_link_is_followed_and_its_file_keeps_its_mode(run: Path, folder: Path, name: str) -> None:
    """Over two links, one of them relative."""
    out, target, between = folder / "out", folder / "target", folder.parent / "between"
    target.write_text("old" * 100_000)
    target.chmod(0o640)
    between.symlink_to("here/target")
    out.symlink_to(between)
    written = _write(run, name, out)

    assert (out.is_symlink(), target.read_bytes()) == (True, written)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_link_to_what_is_not_there_yet_is_followed(run: Path, folder: Path) -> None:
    """And the new file has the mode of every new file."""
    out, target = folder / "out", folder / "target"
    out.symlink_to(target)
    written = _write(run, "query", out)
    (folder.parent / "usual").touch()

    assert (out.is_symlink(), target.read_bytes()) == (True, written)
    assert target.stat().st_mode == (folder.parent / "usual").stat().st_mode


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "{link}", "-"])
def test_standard_output_that_a_shell_appends_to_keeps_what_it_has(
    run: Path, folder: Path, path: str
) -> None:
    """By each of its names."""
    out, link = folder / "out", folder.parent / "link"
    link.symlink_to("/dev/stdout")
    out.write_text("before\n")
    program = [sys.executable, "-m", "overwatch.cli", "query", run, "-o", path.format(link=link)]
    with out.open("ab") as stream:
        subprocess.run(program, stdout=stream, check=True)
    written = _write(run, "query", folder / "target")

    assert out.read_bytes() == b"before\n" + written


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
def test_owner_and_mode_stay_or_nothing_is_written() -> None:
    """A file in another user's folder, of another user whose group may write, and one without permission."""
    with TemporaryDirectory() as name:
        _check_owners(Path(name))


def _check_owners(folder: Path) -> None:
    out = folder / "out"
    cases = {
        (65534, 65534, 0o600, 0o755): 0,  # the folder takes no new file
        (0, 65534, 0o660, 0o777): 0,  # a new file would have another owner
        (0, 0, 0o644, 0o777): 2,  # could be replaced by name, and is not the user's to write
    }
    for (user, group, mode, mode_of_folder), status in cases.items():
        out.write_text("old")
        os.chown(out, user, group)
        out.chmod(mode)
        folder.chmod(mode_of_folder)
        program = [sys.executable, "-c", _AS_NOBODY, str(out)]
        result = subprocess.run(program, stderr=subprocess.PIPE, text=True, check=False)
        kept = out.stat()

        assert result.returncode == status, result.stderr
        assert (kept.st_uid, kept.st_gid, stat.S_IMODE(kept.st_mode)) == (user, group, mode)
        assert out.read_text() == ("new" if status == 0 else "old")
        assert list(folder.iterdir()) == [out]
        assert (f"{out} cannot be written: it is write-protected" in result.stderr) == (status == 2)


_AS_NOBODY = """
import os, sys
from pathlib import Path
from overwatch.output import OutputError, write_output
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    write_output(Path(sys.argv[1]), b"new")
except OutputError as error:
    sys.exit(print(error, file=sys.stderr) or 2)
"""


@pytest.mark.parametrize(
    ("place", "cause"),
    [(".", "is a folder; name a file"), ("loop", "symbolic links"), ("file/out", "Not a directory")],
)
def test_what_cannot_be_written_is_an_error_that_says_why(
    run: Path, folder: Path, place: str, cause: str
) -> None:
    """Status 2, and nothing is left."""
    (folder.parent / "loop").symlink_to("loop")
    (folder.parent / "file").touch()
    result = overwatch("query", run, "-o", folder.parent / place)

    assert (result.exit_code, cause in result.stderr) == (2, True), result.stderr
    assert {path.name for path in folder.parent.iterdir()} == {"loop", "file", "here"}

"""Two runs beside one another in the terminal: both stand where the replay of the first stands."""

from pathlib import Path

import pytest

from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import player_of
from overwatch.snapshot import View
from overwatch.tui import Known, shot
from overwatch.tui.actions import pages
from overwatch.tui.comparison import Comparison, comparison_of
from overwatch.tui.context import Context, Page, Ui, freshness
from overwatch.tui.keys import Mode
from overwatch.tui.playback import Playback
from overwatch.tui.screen import page as page_of
from overwatch.tui.session import Session
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.simulate.runs import overwatch, record

_SIZE = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "80", "--seed", "5")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A healthy run, and the same whose policy collapses at half its length."""
    folder = tmp_path_factory.mktemp("beside")
    first = record(folder / "a", *_SIZE, "--run-id", "healthy")
    second = record(folder / "b", *_SIZE, "--run-id", "collapsed", "--fault", "policy-collapse@40")
    return first / "snapshots.jsonl", second / "snapshots.jsonl"


@pytest.fixture(scope="module")
def both(logs: tuple[Path, Path]) -> Comparison:
    """Compared."""
    return comparison_of(read_history(logs[0]), read_history(logs[1]))


def _frame(logs: tuple[Path, Path], both: Comparison, second: float, keys: tuple[str, ...] = ()) -> list[str]:
    player = player_of(open_input(logs[0]))
    player.seek(player.first + int(second * 1e9))
    text = shot(lambda view: player.look(None, view), "text", (120, 40), keys, Known(beside=both))
    return str(text).splitlines()


def _row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line[1:].strip().startswith(name))


def test_both_are_shown_at_the_same_update(logs: tuple[Path, Path], both: Comparison) -> None:
    """Alike before the collapse, apart after it; each with its own verdict of that time."""
    before, after = _frame(logs, both, 30), _frame(logs, both, 70)

    cells = _row(before, "KL").split()
    assert cells[1] == cells[2]
    assert "+0.0%" in cells
    assert _row(after, "KL").split()[1] != _row(after, "KL").split()[2]
    assert "CRIT" not in "".join(line for line in before if line.startswith(" B collapsed"))
    assert "policy collapse" in next(line for line in after if line.startswith(" B collapsed"))
    assert "policy collapse" not in next(line for line in after if line.startswith(" A healthy"))
    assert "parts from A at update 4" in "".join(after)


def test_the_curve_under_the_cursor_is_drawn(logs: tuple[Path, Path], both: Comparison) -> None:
    """Every line is as wide as the terminal; the cursor goes from number to number."""
    lines = _frame(logs, both, 60, ("j",))

    assert any(line.startswith("─ KL ") for line in lines)
    assert any(line.startswith("─ RETURN ") for line in _frame(logs, both, 60))
    assert len(lines) == 40


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_a_recording_that_plays_has_its_transport_there(
    logs: tuple[Path, Path], both: Comparison, width: int, height: int
) -> None:
    """On the line on which the overview has it; a click finds what is below it where it is now."""
    player = player_of(open_input(logs[0]))
    snapshot = player.look(None, View())
    assert snapshot is not None
    shown = Ui(page=Page.COMPARE, beside=both)
    playback = Playback(time=snapshot.time, first=snapshot.time, last=snapshot.time + 80, playing=True)
    still, plays = (
        page_of(
            Page.COMPARE,
            snapshot,
            Context(width=width, height=height, fresh=freshness(snapshot.link, 0.0), ui=shown, playback=at),
        )
        for at in (None, playback)
    )

    assert [len(page.lines) for page in (still, plays)] == [height, height]
    assert "┃" in "".join(span.text for span in plays.lines[1])
    assert "Space" in "".join(span.text for span in plays.lines[1])
    assert plays.lines[0] == still.lines[0]
    assert plays.lines[2] == still.lines[1]
    first = [page.targets.index(next(one for one in page.targets if one)) for page in (still, plays)]
    assert first[1] == first[0] + 1


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x60"])
def test_it_fits_each_terminal(logs: tuple[Path, Path], size: str) -> None:
    """From the command line."""
    done = overwatch("tui", "--compare", *logs, "--once", "--size", size, "--at", "50")
    width, height = map(int, size.split("x"))

    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == height
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "COMPARE" in done.stdout


def test_its_key_opens_and_closes_it(both: Comparison) -> None:
    """Without another run it states how to name one."""
    session = Session()
    session.compare_with(both)
    assert session.mode is Mode.COMPARE
    pages.toggle(session, "compare")
    assert session.ui.page is None
    session.compare_with(None)
    pages.toggle(session, "compare")
    assert session.ui.page is not Page.COMPARE
    assert "overwatch tui --compare" in str(session.ui.notice)


def test_what_excludes_it_is_reported(logs: tuple[Path, Path], tmp_path: Path) -> None:
    """Another source; a file that is no recording."""
    (tmp_path / "garbage").write_bytes(b"\x00\xff" * 100)

    for words in (("--replay", logs[0]), ("--connect", "ws://127.0.0.1:1")):
        assert overwatch("tui", "--compare", *logs, "--once", *words).exit_code == 2
    garbage = overwatch("tui", "--compare", logs[0], tmp_path / "garbage", "--once")
    assert garbage.exit_code == 2
    assert "garbage" in garbage.stderr

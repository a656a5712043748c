"""Every page in every state at three sizes, in colour, without, and in ASCII; the pages' cells where stable.

    python -m tests.overwatch.tui.test_scenes

draws the files of `frames/pages` anew: look at what changed before it is committed.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from overwatch.tui.context import Page
from overwatch.tui.keys import Mode
from overwatch.tui.playback import Mark
from overwatch.tui.text import width_of
from overwatch.tui.theme import THEMES, Look
from tests.overwatch.tui import drawers, pasts, scenario, states
from tests.overwatch.tui.pressing import Deck, Terminal
from tests.overwatch.tui.test_hostile import PAGES
from tests.overwatch.tui.test_layout import _bare
from tests.overwatch.tui.test_paging import _runs

FRAMES = Path(__file__).parent / "frames" / "pages"
SIZES = ((80, 24), (120, 40), (200, 60))


def _tiny() -> Snapshot:
    """One env on one lane, without a finding, a host or an update."""
    full = scenario.healthy()
    group = msgspec.structs.replace(full.board.groups[0], n_envs=1, counts={"ok": 1})
    board = msgspec.structs.replace(full.board, groups=(group,), counts={"ok": 1})
    run = msgspec.structs.replace(full.run, n_envs=1, devices=("gpu1",))
    system = msgspec.structs.replace(full.system, gpus=full.system.gpus[:1], host=None)
    return msgspec.structs.replace(
        full, run=run, board=board, envs=full.envs[:1], system=system, policy={}, feed=()
    )


STATES: dict[str, Callable[[], Snapshot]] = {
    "empty": _bare, "started": scenario.started, "healthy": scenario.healthy, "storm": drawers.opened,
    "stale": states.stale, "lost": states.lost, "catching up": states.catching_up,
    "replay": drawers.opened, "tiny": _tiny, "huge": scenario.huge, "no slots": scenario.without_slots,
}  # fmt: skip


def _scene(page: str, state: str, size: tuple[int, int]) -> Terminal:
    marks = (Mark(time=9.0, severity="warning"), Mark(time=70.0, severity="critical"))
    deck = Deck(marks) if state == "replay" else None
    terminal = Terminal(STATES[state](), *size, transport=deck)
    terminal.session.ui.runs = _runs()
    for second in range(1, 4):
        later = STATES[state]()
        terminal.take(msgspec.structs.replace(later, time=later.time + second))
    if page in ("curves", "config") and terminal.session.snapshot is not None:
        terminal.session.remember(pasts.of(terminal.session.snapshot))
    if page == "compare":
        terminal.session.compare_with(drawers.BOTH)
        terminal.paint()
    terminal.press(*PAGES[page])
    return terminal


def test_every_mode_and_every_page_is_among_the_scenes() -> None:
    """A page that is added is drawn here in every state, and by the hostile corpus."""
    seen, pages = set(), set()
    for page in PAGES:
        session = _scene(page, "storm", (120, 40)).session
        seen.add(session.mode)
        pages.add(session.ui.page)
    assert seen == set(Mode)
    assert pages == {None, *Page}


@pytest.mark.sampled(50)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_in_every_state(page: str, state: str) -> None:
    """Exactly the terminal's lines and cells, with its head and its key line, in each look."""
    for width, height in SIZES:
        terminal = _scene(page, state, (width, height))
        lines = terminal.frame.lines
        assert len(lines) == height
        assert {width_of(line) for line in lines} == {width}
        assert all(letter.isprintable() for letter in terminal.screen.replace("\n", ""))
        assert terminal.lines[-1].strip()
        if page not in ("help", "topic"):
            assert terminal.lines[0].startswith(" OVERWATCH ")
        _in_every_look(terminal, width)


def _in_every_look(terminal: Terminal, width: int) -> None:
    """Colours never change the text; ASCII has the same cells in 0x20 to 0x7e."""
    for line, plain in zip(terminal.frame.lines, terminal.lines, strict=True):
        for theme in THEMES:
            assert "".join(part.text for part in Look(theme=theme).segments(line)) == plain
        ascii_line = "".join(part.text for part in Look(ascii=True).segments(line))
        assert len(ascii_line) == width
        assert all(" " <= letter <= "~" for letter in ascii_line)


STABLE = (
    "alarm", "lane", "slot", "line", "findings", "policy", "runs", "heatmap", "compare", "curves", "config",
)  # fmt: skip
"""Pages whose cells are held; of the others the sketches are, or the key table alone decides."""


def _name(page: str, size: tuple[int, int]) -> Path:
    return FRAMES / f"{page}-{size[0]}x{size[1]}.txt"


def _text(page: str, size: tuple[int, int]) -> str:
    """Without the key line, which is the key table's."""
    return "\n".join(line.rstrip() for line in _scene(page, "storm", size).lines[:-1]) + "\n"


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("page", STABLE)
def test_the_page_is_the_drawn_one(page: str, size: tuple[int, int]) -> None:
    """Every cell of the pages over the storm."""
    assert _text(page, size) == _name(page, size).read_text(encoding="utf-8")


if __name__ == "__main__":
    FRAMES.mkdir(exist_ok=True)
    for one in STABLE:
        for of in SIZES[:2]:
            _name(one, of).write_text(_text(one, of), encoding="utf-8")
            sys.stdout.write(f"{_name(one, of)}\n")

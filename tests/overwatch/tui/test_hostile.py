"""Whatever telemetry sends, it is shown and never obeyed: on every page, and in the bytes at the terminal."""

import dataclasses
import random
import re
import sys
import time

import msgspec
import pytest
from rich.console import Console
from textual.strip import Strip

from overwatch.feeds.live import Listed
from overwatch.snapshot.history import Curve
from overwatch.tui.text import Span, clean, fit, width_of
from overwatch.tui.theme import Look
from tests.overwatch.tui import drawers, hostile, pasts
from tests.overwatch.tui.pressing import Terminal
from tests.overwatch.tui.ptys import running
from tests.overwatch.tui.test_paging import _runs

PAGES: dict[str, tuple[str, ...]] = {
    "overview": (), "drawer": ("enter",), "full": ("enter", "f"), "alarm": ("1",), "lane": ("i",),
    "slot": ("enter", "i"), "line": ("l", "k", "i"), "feed": ("l",), "findings": ("A",),
    "policy": ("P",), "runs": ("R",), "heatmap": ("H",), "help": ("question_mark",),
    "gpus": ("G",), "log": ("O",), "topic": ("question_mark", "tab"), "palette": ("colon",),
    "filter": ("slash",), "compare": (), "curves": ("c",), "config": ("colon", *"con", "enter"),
}  # fmt: skip
_OWN = re.compile(
    rb"\x1b\[[0-9;:?<>=$]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\x1b\\"
    rb"|\x1bP[^\x1b]*\x1b\\|\x1b\]22;[a-z-]*\x07"
)
"""The sequences that Textual itself writes: CSI, character sets, modes, the shape of the pointer."""


def _few(curve: Curve) -> Curve:
    """A few columns of a curve: only its words are foreign."""
    rows = {name: getattr(curve, name)[::24] for name in ("at", "update", "low", "high")}
    return msgspec.structs.replace(curve, fmt=".3f", **rows)


def _shown(page: str, text: str, width: int) -> list[str]:
    terminal = Terminal(hostile.poisoned_snapshot(drawers.opened(), text), width, 40)
    terminal.session.ui.runs = tuple(
        Listed(collector=text, run=None if one.run is None else hostile.poisoned(one.run, text), reason=text)
        for one in _runs()
    )
    if page in ("curves", "config"):
        past = hostile.poisoned(pasts.of(drawers.opened()), text)
        curves = tuple(_few(one) for one in past.curves)
        run_id = terminal.session.snapshot.run.run_id if terminal.session.snapshot else text
        terminal.session.remember(msgspec.structs.replace(past, run_id=run_id, curves=curves))
    if page == "compare":
        both = hostile.poisoned(drawers.BOTH, text)
        plain = [dataclasses.replace(row, fmt=".4f") for row in both.rows]
        terminal.session.compare_with(dataclasses.replace(both, rows=tuple(plain)))
        terminal.paint()
    terminal.press(*PAGES[page])
    return terminal.lines


def _whole(page: str, texts: list[str]) -> None:
    for place, text in enumerate(texts):
        width = (80, 120)[place % 2]
        lines = _shown(page, text, width)
        assert len(lines) == 40
        for line in lines:
            assert all(letter.isprintable() for letter in line), (text, line)
            assert width_of([Span(line)]) == width, (text, line)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("page", PAGES)
def test_no_control_reaches_any_page_and_no_line_changes_its_width(page: str) -> None:
    """Every string of the snapshot is foreign; a part of the corpus."""
    _whole(page, hostile.corpus(2000)[:: 2000 // 24])


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_no_control_reaches_any_page_whole_corpus(page: str) -> None:
    """All 2,000 strings on every page."""
    _whole(page, hostile.corpus(2000))


def _rendered(count: int) -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=60)
    dice, look = random.Random(11), Look()  # noqa: S311
    for _ in range(count):
        text = hostile.noise(dice)
        line = fit([Span(clean(text))], 60)
        shown = Strip(look.segments(line), 60).render(console)
        assert not set(shown) & set(map(chr, [*range(0x1B), *range(0x1C, 0x20), 0x7F, *range(0x80, 0xA0)]))
        assert "\x1b" not in clean(text)


def test_random_strings_are_drawn_as_they_are() -> None:
    """No markup is read, nothing raises."""
    _rendered(5_000)


@pytest.mark.long
def test_a_hundred_thousand_random_strings_are_drawn_as_they_are() -> None:
    """The same, long."""
    _rendered(100_000)


def _captured(count: int) -> bytes:
    """What a real terminal is written while every string of every snapshot is one of the corpus."""
    with running([sys.executable, "-m", "tests.overwatch.tui.serve_hostile", str(count)]) as terminal:
        deadline = time.monotonic() + 60 + count
        while terminal.process.poll() is None:
            assert time.monotonic() < deadline, "the pages never ended"
            terminal.read()
        assert terminal.exit_code() == 0
        assert "KEYS" in terminal.text()
        return terminal.written


def _nothing_foreign(written: bytes) -> None:
    rest = _OWN.sub(b"", written)
    assert b"\x1b" not in rest, rest[max(0, rest.index(b"\x1b") - 40) :][:120]
    text = rest.decode("utf-8")
    assert not {letter for letter in text if ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0} - {"\r", "\n"}
    assert b"\x1b[6n" not in written
    assert b"\x1b]52;" not in written


def test_the_bytes_at_the_terminal_are_the_applications_own() -> None:
    """A part of the corpus, on every page in turn."""
    _nothing_foreign(_captured(60))


@pytest.mark.long
def test_the_bytes_at_the_terminal_are_the_applications_own_whole_corpus() -> None:
    """All 2,000 strings."""
    _nothing_foreign(_captured(2000))

"""The policy's pulse on the page: the snapshot's own words, with the terminal's bars."""

import pytest

from overwatch.snapshot import Reading, Snapshot
from overwatch.tui.grammar import sparkline
from overwatch.tui.panels.policy import CELLS
from overwatch.tui.text import clean
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene, shown, text
from tests.overwatch.web.scenes import SCENES

ARROWS = {"up": "↑", "down": "↓", "flat": "→"}
WORDS = {"ok": "OK", "warning": "WARN", "critical": "CRIT"}


def expected(reading: Reading, *, old: bool) -> list[str]:
    """Value, arrow, word, bars and limit, as the terminal has them."""
    word = "" if reading.limit is None and reading.status == "ok" else WORDS.get(reading.status, "")
    limit = clean(reading.limit.text) if reading.limit and reading.status != "absent" else ""
    mark = "~" if old and reading.text != "–" else ""
    bars = "".join(span.text for span in sparkline(reading.history, 10, reading.scale))
    return [mark + clean(reading.text), ARROWS.get(reading.trend or "", ""), word, bars, limit]


@pytest.mark.parametrize("name", SCENES)
def test_the_pulse_is_the_snapshots(name: str, page_of: PageOf) -> None:
    """Nine places, each with what the snapshot has of it; what is absent is a dash."""
    snapshot: Snapshot = SCENES[name]()
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        cells = page.locator(".p-cell")

        drawn = [
            [cell.locator(f".{part}").text_content() for part in ("num", "arrow", "word", "bars", "limit")]
            for cell in cells.all()
        ]
        old = snapshot.link.state == "stale"
        assert drawn == [expected(snapshot.policy.get(cell.name, Reading()), old=old) for cell in CELLS]
        page.close()


def test_the_pulse_is_noted_as_in_the_terminal(page_of: PageOf) -> None:
    """Update, its age and the preset; before an update that there is none."""
    with Scene(scenario.started()).served() as url:
        page = shown(page_of(url))
        assert text(page, ".policy .muted") == "no update yet · preset ppo"
        page.close()


def test_a_place_of_the_pulse_opens_its_curve(page_of: PageOf) -> None:
    """By a click, in this tab; the address names it."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        page.locator(".p-cell", has_text="entropy").click()
        page.wait_for_url("**/?page=curves&name=entropy")
        page.close()

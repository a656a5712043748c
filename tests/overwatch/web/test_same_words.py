"""Page and terminal write the same of the same snapshot: verdict, alarms, progress."""

import re
from collections.abc import Callable
from datetime import UTC

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from overwatch.tui import once
from overwatch.tui.context import Context, freshness
from overwatch.tui.panels import alarms, header
from overwatch.tui.text import plain
from tests.overwatch.tui import scenario, states
from tests.overwatch.web.browser import PageOf, Scene, shown, text

WIDTH = 400
"""Of a terminal in which nothing has to give way."""


def aged() -> Snapshot:
    """Findings of every age, one of them gone, one that the run ended with, an unknown severity."""
    full = scenario.storm()
    first = full.findings[0]
    ages = (0.2, 1.0, 59.4, 61.0, 599.0, 601.0, 3599.0, 36_061.0, 90_000.0, 4e7)
    some = [
        msgspec.structs.replace(first, id=f"a{place}", since=full.time - age)
        for place, age in enumerate(ages)
    ]
    some.append(msgspec.structs.replace(first, id="gone", cleared_at=full.time - 65.0))
    some.append(msgspec.structs.replace(first, id="ended", ended_at=full.time - 30.0))
    some.append(msgspec.structs.replace(first, id="odd", severity="odd"))
    return msgspec.structs.replace(full, findings=tuple(some))


SCENES: dict[str, Callable[[], Snapshot]] = {
    "healthy": scenario.healthy, "storm": scenario.storm, "stale": states.stale, "lost": states.lost,
    "ended": states.ended, "ended_sick": states.ended_sick, "failed": states.failed, "silent": states.silent,
    "catching_up": states.catching_up, "aged": aged,
}  # fmt: skip


def words(line: str) -> list[str]:
    """What is written, without how far apart."""
    return line.split()


@pytest.fixture(params=SCENES)
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """A run in each state."""
    return SCENES[request.param]()


def test_verdict_alarms_and_progress_are_the_terminals(snapshot: Snapshot, page_of: PageOf) -> None:
    """Word by word, in the same order."""
    ctx = Context(width=WIDTH, height=60, fresh=freshness(snapshot.link, 0.0), zone=UTC)
    rail = alarms.render(snapshot, ctx, 99).lines[1:]
    verdict = plain(header.verdict(snapshot, ctx)[0])
    progress = plain(header.render(snapshot, ctx)[1]).partition("paint")[0]
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        shown_verdict = text(page, ".verdict")
        rows = page.locator("ol.alarms > li").all_inner_texts()
        far = text(page, "#top .far")
        page.close()

    assert words(shown_verdict) == words(verdict)
    assert [words(row) for row in rows] == [
        words(plain(line))[1 if at < 9 else 0 :] for at, line in enumerate(rail)
    ]
    assert words(far.replace(" · ", " ")) == words(re.sub("[━─]", "", progress))


def test_the_terminals_frame_has_the_pages_words(page_of: PageOf) -> None:
    """The whole program's text, as `overwatch tui --once --format text` prints it."""
    frame = " ".join(once(scenario.storm(), "text", 200, 60, zone=UTC).split())
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        verdict = text(page, ".verdict .text")
        messages = [one.strip() for one in page.locator("ol.alarms .hint").all_inner_texts()]
        page.close()

    assert verdict in frame
    assert all(message in frame for message in messages)

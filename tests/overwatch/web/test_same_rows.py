"""The board's rows on the page are those of the terminal's frame of the same snapshot, cell by cell."""

import re
from datetime import UTC
from urllib.parse import urlencode

import msgspec
import pytest
from playwright.sync_api import Page

from overwatch.snapshot import Snapshot, View
from overwatch.tui.context import Context, freshness
from overwatch.tui.panels import board
from overwatch.tui.text import left, plain
from tests.overwatch.web.browser import PageOf, Scene, settled, shown
from tests.overwatch.web.scenes import SCENES, Fleet

WIDTH, HEIGHT = 4000, 320
"""Of a terminal in which no column gives way and no row is left out."""
FIRST = 20
ROW = ".b-line[data-kind=env]"


def words(row: str) -> list[str]:
    """What is written, without how far apart; the sign of an old value takes the place of a leading 0."""
    return [re.sub(r"^([+-]?)0\.", r"\1.", word) for word in row.split()]


def drawn(page: Page) -> list[list[str]]:
    """The words of each row, a chip being one; the env comes first. Of one list the page has the lane too."""
    page.wait_for_selector(ROW)
    rows: list[list[list[str]]] = page.evaluate(
        """(rows) => [...document.querySelectorAll(rows)].map((row) =>
            [...row.querySelectorAll(":scope > [role=gridcell]:not(.b-label, .b-lane)")].map((cell) =>
                [cell.className, ...[...(cell.children.length ? cell.children : [cell])].map(
                    (one) => one.textContent)]))""",
        ROW,
    )
    return [
        words(" ".join(acted(*texts) if name == "b-action" else " ".join(texts) for name, *texts in row))
        for row in rows
    ]


def acted(action: str) -> str:
    """As wide as the terminal's column; the page's has an end of its own."""
    op, _, where = action.partition(" ")
    return left(f"{left(op, 5)} {where}", 10) if where else op


def framed(snapshot: Snapshot) -> list[list[str]]:
    """The same of the terminal, without its cursor and the sign of an old value."""
    ctx = Context(width=WIDTH, height=HEIGHT, fresh=freshness(snapshot.link, 0.0), zone=UTC)
    frame = board.render(snapshot, ctx, HEIGHT)
    return [
        words(plain(line).lstrip(" >").replace("~", ""))
        for line, target in zip(frame.lines, frame.targets, strict=False)
        if isinstance(target, int)
    ]


def every(snapshot: Snapshot, view: View) -> Snapshot:
    """As the view API answers a view of all rows, lane by lane."""
    board = msgspec.structs.replace(snapshot.board, offset=view.offset, total=len(snapshot.envs))
    return msgspec.structs.replace(snapshot, board=board)


@pytest.mark.parametrize("name", ["healthy", "storm", "ended sick", "stale", "hostile", "without slots"])
def test_rows_of_a_scene_are_the_terminals(name: str, page_of: PageOf) -> None:
    """Ids, status, anomaly, reasons, numbers, action and chips."""
    snapshot: Snapshot = SCENES[name]()
    with Scene(snapshot, of_view=every).served() as url:
        page = shown(page_of(f"{url}?first=0", size=(1900, 1400)))
        here = framed(snapshot)[:FIRST]
        there = settled(page, lambda: drawn(page)[:FIRST], here)
        page.close()

    assert len(there) == FIRST
    assert there == here


VIEWS = {
    "worst": View(), "best": View(descending=False), "env": View(sort="env", descending=False),
    "env, last first": View(sort="env"), "filtered": View(filter="status=crashed"),
    "some, env": View(filter="env=1,5,97", sort="env", descending=False),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_rows_of_a_view_are_the_terminals(name: str, page_of: PageOf) -> None:
    """In both orders, of a filter, over all lanes: each asked for by its own address."""
    view, fleet = VIEWS[name], Fleet(200)
    asked = {"sort": view.sort, "order": "desc" if view.descending else "asc", "filter": view.filter,
             "first": "0"}  # fmt: skip
    with fleet.served() as url:
        page = shown(page_of(f"{url}?{urlencode(asked)}", size=(1900, 1400)))
        here = framed(fleet.seen(view))
        there = settled(page, lambda: drawn(page)[:FIRST], here[:FIRST])
        page.close()

    assert len(here) in (3, 200)
    assert there == here[:FIRST]

"""Envs and GPUs over the time of the run: what a cell is, in words, and where it leads."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from overwatch.snapshot import Snapshot
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PHONE, PageOf, Scene, pinched, shown

ROW, BEGIN, COLUMNS = 14, 104, 100
ENVS = {" ": "not there", "?": "not known", "0": "ok", "9": "score above 8", "x": "crashed"}
LANES = {" ": "not there", "a": "COMPUTE-BOUND", "B": "SYNC-BOUND", "@": "THROTTLED"}
MARKS = {"?": "?", "9": "!!", "x": "!!", "B": "!", "@": "!!"}


def cells(of: str, row: int) -> str:
    """Of an env: an anomaly, then a crash at half; every tenth is calm."""
    if of == "gpu":
        return "a" * 50 + ("@" if row else "B") * 50
    return "0" * COLUMNS if row % 10 else " " * 10 + "0" * 20 + "9" * 20 + "x" * 50


def answer(snapshot: Snapshot, query: dict[str, list[str]], total: int) -> dict[str, Any]:
    """What `/api/v1/heat` answers, as its contract has it."""
    of, first, most = query["of"][0], int(query.get("offset", ["0"])[0]), int(query["rows"][0])
    num = 2 if of == "gpu" else total
    rows = [
        {"id": f"gpu{row}" if of == "gpu" else row, "group": None if of == "gpu" else f"gpu{row % 2}",
         "cells": cells(of, row)}
        for row in range(first, min(num, first + most))
    ]  # fmt: skip
    words = LANES if of == "gpu" else ENVS
    legend = {one: {"text": text, "mark": MARKS.get(one, "")} for one, text in words.items()}
    return {
        "run_id": snapshot.run.run_id, "of": of, "since": snapshot.time - COLUMNS, "until": snapshot.time,
        "step_s": 1.0, "columns": COLUMNS, "total": num, "offset": first, "rows": rows, "legend": legend,
    }  # fmt: skip


@contextmanager
def opened(
    page_of: PageOf, query: str, total: int = 64, **how: Any
) -> Iterator[tuple[Page, list[dict[str, list[str]]]]]:
    """The page over a storm, and what it asks the heat for."""
    asked: list[dict[str, list[str]]] = []
    storm = scenario.storm()

    def heat(route: Route) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query))
        route.fulfill(body=json.dumps(answer(storm, asked[-1], total)), content_type="application/json")

    with Scene(storm).served() as url:
        page = page_of(url, **how)
        page.route("**/api/v1/heat?*", heat)
        page.goto(f"{url}?{query}")
        shown(page)
        expect(page.locator(".legend")).not_to_be_empty()
        yield page, asked
        page.close()


def point(page: Page, row: int, column: int) -> Locator:
    """Point at a cell, and where it is read."""
    box = page.locator(".heat canvas").bounding_box()
    assert box is not None
    wide = box["width"] - BEGIN - 8
    page.mouse.move(box["x"] + BEGIN + (column + 0.5) / COLUMNS * wide, box["y"] + row * ROW + 7)
    return page.locator("p.read")


@pytest.mark.parametrize(
    ("row", "column", "word"),
    [(0, 5, "not there"), (0, 40, "score above 8"), (20, 80, "crashed"), (3, 80, "ok")],
)
def test_a_cell_is_read_in_words(page_of: PageOf, row: int, column: int, word: str) -> None:
    """The env, its lane, from when to when, and how it was: the answer's own words."""
    with opened(page_of, "page=heat") as (page, _):
        expect(point(page, row, column)).to_have_text(
            re.compile(rf"^env {row} gpu{row % 2} · \d\d:\d\d:\d\d to \d\d:\d\d:\d\d · {word}( · now .*)?$")
        )


def test_a_click_opens_the_env_at_that_time(page_of: PageOf) -> None:
    """In the address, so that the link leads there too."""
    with opened(page_of, "page=heat", expected="404|400") as (page, _):
        expect(point(page, 10, 60)).to_contain_text("env 10")
        page.mouse.down()
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"at=\d+\.\d&env=10"))
        at = float(parse_qs(urlsplit(page.url).query)["at"][0])

    assert at == pytest.approx(scenario.storm().time - COLUMNS + 60.5, abs=1)


def test_keys_move_read_and_open(page_of: PageOf) -> None:
    """As in the terminal; H leads here and back."""
    with opened(page_of, "page=heat") as (page, _):
        page.keyboard.press("j")
        page.keyboard.press("PageDown")
        expect(page.locator("p.read")).to_contain_text("env 11 gpu1")
        page.keyboard.press("k")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("p.read")).to_contain_text("env 10 gpu0")
        page.keyboard.press("H")
        expect(page).not_to_have_url(re.compile("page=heat"))
        page.keyboard.press("H")
        expect(page).to_have_url(re.compile("page=heat"))


def test_gpus_are_shown_by_what_holds_them_back(page_of: PageOf) -> None:
    """Words in the legend and at the cursor; no filter of envs is asked for."""
    with opened(page_of, "page=heat&of=gpu&filter=status=degraded") as (page, asked):
        expect(page.locator(".legend")).to_have_text("COMPUTE-BOUNDSYNC-BOUNDTHROTTLED")
        expect(point(page, 1, 80)).to_contain_text("gpu gpu1")
        expect(page.locator("p.read")).to_contain_text("THROTTLED")

    assert "filter" not in asked[-1]


def test_of_many_envs_those_in_sight_are_asked_for(page_of: PageOf) -> None:
    """16,384 rows scroll, and no answer holds more than a screen and some."""
    with opened(page_of, "page=heat", total=16_384) as (page, asked):
        expect(page.locator("#main h2").last).to_have_text("Envs over time: 16,384")
        page.evaluate("document.querySelector('.heat').scrollTop = 14 * 10000")
        expect(point(page, 5, 40)).to_contain_text("env 10005")

    assert max(int(one["rows"][0]) for one in asked) < 200


def test_the_row_below_a_resting_pointer_is_read_after_a_scroll(page_of: PageOf) -> None:
    """A wheel or a key scrolls, and no pointer moves; a row that a key chose stays."""
    with opened(page_of, "page=heat", total=16_384) as (page, _):
        expect(page.locator("#main h2").last).to_have_text("Envs over time: 16,384")
        expect(point(page, 5, 40)).to_contain_text("env 5 ")
        page.evaluate("document.querySelector('.heat').scrollTop = 14 * 10000")
        expect(page.locator("p.read")).to_contain_text("env 10005 ")
        page.keyboard.press("k")
        page.evaluate("document.querySelector('.heat').scrollTop = 14 * 10002")
        expect(page.locator("p.read")).to_contain_text("env 10004 ")


def test_the_filter_and_the_order_are_the_boards(page_of: PageOf) -> None:
    """By anomaly the worst come first; by env they are in order."""
    with opened(page_of, "page=heat") as (page, asked):
        assert asked[-1]["sort"] == ["worst"]
        page.get_by_role("button", name="By id").click()
        field = page.get_by_label("Filter of the board")
        field.fill("gpu=0")
        field.press("Enter")
        expect(page).to_have_url(re.compile("filter=gpu%3D0"))
        page.wait_for_function(
            "() => performance.getEntriesByType('resource').some((one) => /heat.*filter=gpu/.test(one.name))"
        )

    assert asked[-1]["filter"] == ["gpu=0"]
    assert "sort" not in asked[-1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_on_a_phone(page_of: PageOf, scheme: str) -> None:
    """Nothing is wider than the page, and cells have ink."""
    with opened(page_of, "page=heat", size=PHONE, scheme=scheme) as (page, _):
        wide: Callable[[], int] = lambda: page.evaluate("document.documentElement.scrollWidth")  # noqa: E731
        assert wide() <= PHONE[0]
        assert len(page.locator(".heat canvas").screenshot()) > 1000


def test_two_fingers_zoom_and_open_nothing(page_of: PageOf) -> None:
    """Though one of them rests, as a finger does that points at an env."""
    with opened(page_of, "page=heat", size=PHONE, has_touch=True) as (page, _):
        pinched(page, ".heat canvas", (0.6, 0.7), (0.2, 0.7))
        expect(page).to_have_url(re.compile("from="))
        assert "env=" not in page.url
        assert "at=" not in page.url

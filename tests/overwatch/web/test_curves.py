"""The page of curves: every number of the past, read, zoomed and compared as the address has it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Page, expect

from overwatch.snapshot import Snapshot
from overwatch.snapshot.history import History, HistoryQuery
from tests.overwatch.tui import pasts, scenario, states
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PHONE, PageOf, Scene, cleaned, pinched, shown

ODD = "<b>\u202e' & \t\u0007 名"
KL = next(one for one in pasts.of(scenario.storm()).curves if one.name == "kl_divergence")
LEFT, RIGHT = 48, 8
"""Pixels of a chart's sides, as in chart.js."""


@contextmanager
def served(snapshot: Snapshot, *, text: str | None = None) -> Iterator[tuple[str, list[HistoryQuery]]]:
    """The page over a run with a past, and what was asked of that past."""
    asked: list[HistoryQuery] = []
    whole = pasts.of(snapshot)
    if text is not None:
        whole = msgspec.structs.replace(
            whole, curves=tuple(msgspec.structs.replace(one, label=text, text=text) for one in whole.curves)
        )

    def history(wanted: HistoryQuery) -> History:
        asked.append(wanted)
        fits = [one for one in whole.curves if any(fnmatchcase(one.name, name) for name in wanted.names)]
        return msgspec.structs.replace(whole, curves=tuple(fits))

    with Scene(snapshot, history=history).served() as url:
        yield url, asked


def chart(page: Page, name: str) -> str:
    """Selector of a number's chart, once it is drawn."""
    found = f'figure[data-name="{name}"]'
    expect(page.locator(f"{found} canvas")).to_have_attribute("aria-label", re.compile("."))
    return found


def hover(page: Page, name: str, share: float) -> None:
    """Point at a time, as a share of what is in sight."""
    box = page.locator(f"{chart(page, name)} canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + LEFT + share * (box["width"] - LEFT - RIGHT), box["y"] + 40)


FRAMES = """async () => {
  for (let i = 0; i < 12; i += 1) await new Promise(requestAnimationFrame);
}"""
"""A few canvases are drawn each frame: after these, all in sight are."""


def painted(page: Page) -> Page:
    """The page once its charts are drawn: before, there is nothing to point at."""
    page.wait_for_selector("canvas:not([aria-label='no samples yet'])")
    page.evaluate(FRAMES)
    return page


def test_all_numbers_of_the_past_are_charts(page_of: PageOf) -> None:
    """In the terminal's order, each with its newest value, its judgement and its limits in words."""
    storm = scenario.storm()
    with served(storm) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves")))
        found = page.locator(chart(page, "kl_divergence"))
        expect(found.locator(".values > span").first).to_have_text(KL.text)
        expect(found.locator(".values > b")).to_have_text("OK")
        expect(found.locator(".read")).to_have_text(">.015 >.03")
        label = found.locator("canvas").get_attribute("aria-label")
        names = [one.get_attribute("data-name") for one in page.locator("figure").all()]
        page.close()

    assert label == f"KL {KL.text} OK; >.015 >.03"
    assert names[:3] == ["return", "kl_divergence", "entropy"]
    assert {one.name for one in pasts.of(storm).curves} <= set(names)


@pytest.mark.parametrize("column", [pasts.SPIKE, 120])
def test_one_cursor_reads_all_charts(page_of: PageOf, column: int) -> None:
    """The value of that time; beside the mark of a finding, the finding with its severity as a word."""
    with served(scenario.storm()) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves")))
        chart(page, "return")
        hover(page, "kl_divergence", (column + 0.6) / 480)
        read = page.locator('figure[data-name="kl_divergence"] .read')
        expect(read).to_contain_text(re.compile(rf"^\d\d:\d\d:\d\d @{column} {KL.low[column]:.4f}"))
        if column == pasts.SPIKE:
            expect(read).to_contain_text("WARN kl-divergence")
        else:
            expect(read).not_to_contain_text("WARN")
        expect(page.locator('figure[data-name="return"] .read')).to_contain_text("@")
        page.keyboard.press("x")
        expect(read).to_have_text(">.015 >.03")
        page.close()


def test_what_is_missing_is_a_gap(page_of: PageOf) -> None:
    """Read as a dash, and nothing is drawn there."""
    with served(scenario.storm()) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves&name=mine", expected="willReadFrequently")))
        hover(page, "mine", 140 / 480)
        expect(page.locator(".read")).to_contain_text("–")
        hover(page, "mine", 0.8)
        expect(page.locator(".read")).to_contain_text("0.99")
        inked = page.evaluate(
            """() => {
              const canvas = document.querySelector("figure canvas"), ratio = devicePixelRatio;
              const parts = (data, i) => data.slice(4 * i, 4 * i + 3).join();
              const ink = (share) => {
                const x = 48 + share * (canvas.clientWidth - 56);
                const tall = canvas.height - 40 * ratio;
                const { data } = canvas.getContext("2d").getImageData(x * ratio, 12 * ratio, 1, tall);
                return new Set(Array.from({ length: tall }, (_, i) => parts(data, i))).size;
              };
              return [ink(140 / 480), ink(0.8)];
            }"""
        )
        page.close()

    assert inked[0] < inked[1]


def test_a_drag_zooms_and_the_address_has_it(page_of: PageOf) -> None:
    """The past is asked for again from there to there; who opens the address sees the same; Z shows all."""
    storm = scenario.storm()
    begin = storm.time - pasts.SECONDS
    with served(storm) as (url, asked):
        page = painted(shown(page_of(f"{url}?page=curves")))
        hover(page, "return", 0.25)
        page.mouse.down()
        hover(page, "return", 0.5)
        page.mouse.up()
        expect(page).to_have_url(re.compile("from=.*to="))
        span = parse_qs(urlsplit(page.url).query)
        first, last = float(span["from"][0]), float(span["to"][0])
        assert first == pytest.approx(begin + 150, abs=5)
        assert last == pytest.approx(begin + 300, abs=5)

        page.wait_for_function("() => document.querySelector('.bar button:last-of-type').disabled === false")
        with page.expect_response(lambda one: "history" in one.url and "from=" in one.url):
            page.mouse.move(0, 0)
        wanted = asked[-1]
        assert wanted.since is not None
        assert wanted.until is not None
        assert wanted.since <= first < last <= wanted.until
        page.keyboard.press("Z")
        expect(page).to_have_url(f"{url}?page=curves")
        page.close()


def wide(url: str) -> float:
    """Seconds that an address has in sight; it follows what is shown a moment later."""
    span = parse_qs(urlsplit(url).query)
    return float(span["to"][0]) - float(span["from"][0]) if "to" in span else float("inf")


def test_two_fingers_zoom(page_of: PageOf) -> None:
    """Apart: less, around what is between them; together: more, up to all of it."""
    storm = scenario.storm()
    with served(storm) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves&name=return", size=PHONE, has_touch=True)))
        canvas = f"{chart(page, 'return')} canvas"
        pinched(page, canvas, (0.45, 0.65), (0.25, 0.85))
        page.wait_for_url(lambda url: wide(url) == pytest.approx(pasts.SECONDS / 3, rel=0.1))
        span = parse_qs(urlsplit(page.url).query)
        first, last = float(span["from"][0]), float(span["to"][0])
        middle = (0.55 * PHONE[0] - LEFT) / (PHONE[0] - LEFT - RIGHT) * pasts.SECONDS
        assert (first + last) / 2 == pytest.approx(storm.time - pasts.SECONDS + middle, rel=0, abs=60)
        pinched(page, canvas, (0.2, 0.9), (0.5, 0.55))
        expect(page).not_to_have_url(re.compile("from="))
        page.close()


def test_keys_zoom_move_and_read(page_of: PageOf) -> None:
    """As in the terminal: the last tenth goes on with the run, half of it earlier does not."""
    with served(scenario.storm()) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves&name=kl_divergence")))
        chart(page, "kl_divergence")
        page.keyboard.press("z")
        expect(page).to_have_url(re.compile("from=-60.0&name"))
        page.keyboard.press("(")
        expect(page).to_have_url(re.compile(r"from=\d+\.\d&to="))
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".read")).to_contain_text("@")
        page.keyboard.press("L")
        expect(page).to_have_url(re.compile("log=yes"))
        expect(page.get_by_role("button", name="Log scale")).to_have_attribute("aria-pressed", "true")
        page.close()


def test_one_alone_and_all_again(page_of: PageOf) -> None:
    """By Enter on the chart that has the focus, by Escape back; a filter leaves those that it names."""
    with served(scenario.storm()) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves")))
        chart(page, "return")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("figure")).to_have_count(1)
        expect(page).to_have_url(f"{url}?page=curves&name=kl_divergence")
        page.keyboard.press("Escape")
        expect(page.locator("figure").nth(3)).to_be_attached()
        page.keyboard.press("/")
        page.keyboard.type("loss")
        expect(page).to_have_url(re.compile("match=loss"))
        names = [one.get_attribute("data-name") for one in page.locator("figure").all()]
        page.close()

    assert names
    assert all("loss" in str(name) for name in names)


def test_ranks_lie_over_their_number(page_of: PageOf) -> None:
    """Each with a letter and dashes of its own beside its colour, and its value at the cursor."""
    with served(scenario.storm()) as (url, asked):
        page = painted(shown(page_of(f"{url}?page=curves&name=kl_divergence&over=ranks")))
        legend = page.locator(".legend > span")
        expect(legend).to_have_count(2)
        expect(legend.nth(1)).to_contain_text("a rank 1")
        dashes = [one.get_attribute("stroke-dasharray") for one in page.locator(".legend line").all()]
        hover(page, "kl_divergence", 240.6 / 480)
        expect(legend.nth(1)).to_contain_text(f"@240 {(KL.low[240] or 0) + 0.004:.4f}")
        page.close()

    assert dashes[0] != dashes[1]
    assert any("kl_divergence#*" in one.names for one in asked)


def test_another_run_lies_over_this_one(page_of: PageOf) -> None:
    """By the time since each began, or by update; the runs are ticked from a list."""
    one = scenario.storm()
    other = msgspec.structs.replace(one, run=msgspec.structs.replace(one.run, run_id="other"))
    with Scene(other, one, history=lambda _: pasts.of(one)).served() as url:
        page = painted(shown(page_of(f"{url}?page=curves&name=return&by=update")))
        chart(page, "return")
        page.get_by_text("Other runs").click()
        page.get_by_label("other", exact=True).check()
        expect(page).to_have_url(re.compile("beside=other"))
        expect(page.locator(".legend > span").nth(1)).to_contain_text("a other")
        page.close()


def test_the_numbers_are_a_table(page_of: PageOf) -> None:
    """Every column of the chart with its least and its most, the newest first."""
    with served(scenario.storm()) as (url, _):
        page = painted(shown(page_of(f"{url}?page=curves&name=kl_divergence")))
        chart(page, "kl_divergence")
        page.get_by_text("Numbers").click()
        expect(page.locator("figure tr")).to_have_count(481)
        assert page.locator("figure tr").nth(1).locator("td").all_text_contents()[1:] == [
            "479",
            KL.text,
            KL.text,
        ]
        page.close()


@pytest.mark.parametrize("size", [(1400, 900), PHONE])
@pytest.mark.parametrize("name", ["healthy", "ended sick", "hostile", "no past"])
def test_every_run_has_a_page_of_curves(page_of: PageOf, name: str, size: tuple[int, int]) -> None:
    """Text from a trainer stays text, and nothing is wider than the page."""
    snapshot = {
        "healthy": scenario.healthy(), "ended sick": states.ended_sick(), "no past": scenario.started(),
        "hostile": poisoned_snapshot(scenario.storm(), ODD),
    }[name]  # fmt: skip
    with served(snapshot, text=ODD if name == "hostile" else None) as (url, _):
        page = shown(page_of(f"{url}?page=curves", size=size))
        expect(page.locator("figure a").first).to_have_text(cleaned(ODD) if name == "hostile" else "return")
        wide = page.evaluate("document.documentElement.scrollWidth")
        page.close()

    assert wide <= size[0]

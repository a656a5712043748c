"""The feed: the terminal's lines, chosen as the terminal chooses them, followed unless one scrolls up."""

import itertools
from functools import partial
from urllib.parse import quote

import msgspec
from playwright.sync_api import Page, expect

from overwatch.codec import decode, encode
from overwatch.snapshot import FeedLine, Snapshot
from overwatch.tui.context import Ui
from overwatch.tui.memory import Scrollback
from overwatch.tui.panels import feed
from overwatch.tui.text import plain
from tests.overwatch.tui import scenario
from tests.overwatch.tui.drawers import looking
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PHONE, PageOf, Scene, settled, shown, text

GO = "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')); }"
"""Another place, as by the browser's own keys."""
_LEVELS = ("", "all", "errors", "seeds", "policy", "log", "seeds,log")
_SEARCHES = (
    "", "env=9", "gpu=0", "gpu=gpu1", "slot=r1c1", "seed=44-r0c2-2", "kasmina CRASH", "step=88214", "a%b",
    "env 17", "x=",
)  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def _line(second: float, message: str, kind: str = "log", severity: str = "info", **fields: str) -> FeedLine:
    return FeedLine(
        time=scenario.NOW + second,
        severity=severity,
        subsystem="simic",
        message=message,
        kind=kind,
        fields=fields,
    )


_EVERY = (
    *scenario.storm().feed,
    _line(0.0, "epoch done", kind="log_line", path="a b"),
    _line(0.1, "loading", severity="debug"),
    _line(0.2, "stopped early", kind="early_stopped", update="312"),
    msgspec.structs.replace(scenario.storm().feed[1], time=scenario.NOW + 0.3, chip="✗r1c1 dw"),
    msgspec.structs.replace(scenario.storm().feed[1], time=scenario.NOW + 0.4, gpu_id="big/lane", slot=None),
)


def _storm(*lines: FeedLine, later: float = 1.0) -> Snapshot:
    """As it comes from a collector."""
    full = scenario.storm()
    return decode(encode(msgspec.structs.replace(full, feed=lines or _EVERY, time=full.time + later)))


def _listed(page: Page) -> list[str]:
    return [" ".join(one.split()) for one in page.locator(".feed ol.lines > li").all_inner_texts()]


def _in_the_terminal(lines: tuple[FeedLine, ...]) -> list[str]:
    """As the terminal writes them where there is room for all."""
    snapshot = _storm(*lines)
    drawn = feed.render(snapshot, looking(snapshot, 400, 60, Ui(facts=False)), len(lines)).lines[1:]
    return [" ".join(plain(line).split()) for line in drawn]


def test_a_line_shows_what_the_terminals_shows(page_of: PageOf) -> None:
    """Time, level, subsystem, ids, chip, message and fields, oldest first."""
    with Scene(_storm()).served() as url:
        page = shown(page_of(f"{url}?page=feed&level=all"))
        assert _listed(page) == _in_the_terminal(_storm().feed)
        page.close()


def test_the_same_lines_pass_as_in_the_terminal(page_of: PageOf) -> None:
    """By toggles, by every word of a search, and with neither by what is a fact."""
    kept = Scrollback()
    kept.take(_storm())
    with Scene(_storm()).served() as url:
        page = shown(page_of(f"{url}?page=feed"))
        for level, search in itertools.product(_LEVELS, _SEARCHES):
            page.evaluate(GO, f"?page=feed&level={level}&search={quote(search)}")
            expected = kept.lines(frozenset(level.split(",")) - {"", "all"}, search, facts=level == "")
            lines = _in_the_terminal(expected) if expected else []
            assert settled(page, partial(_listed, page), lines) == lines, (level, search)
            expect(page.get_by_text("no line passes")).to_be_visible(visible=not expected)
        page.close()


def test_toggles_and_search_are_in_the_address_and_escape_drops_them(page_of: PageOf) -> None:
    """By keys and by the mouse; a run without slots has no toggle for seeds."""
    with Scene(_storm()).served() as url:
        page = shown(page_of(f"{url}?page=feed"))
        page.keyboard.press("1")
        page.get_by_role("button", name="policy").click()
        page.keyboard.press("/")
        page.keyboard.type("kl=0.0231")
        expect(page.locator(".feed li")).to_have_count(1)
        page.wait_for_url("**/?page=feed&search=kl%3D0.0231&level=errors%2Cpolicy")
        expect(page.get_by_role("button", name="errors")).to_have_attribute("aria-pressed", "true")
        page.locator("h2").first.click()
        page.keyboard.press("Escape")
        page.wait_for_url("**/?page=feed")
        page.keyboard.press("v")
        expect(page.locator(".feed li")).to_have_count(len(_EVERY))
        page.close()
    with Scene(scenario.without_slots()).served() as url:
        page = shown(page_of(f"{url}?page=feed"))
        expect(page.get_by_role("button", name="seeds")).to_be_hidden()
        expect(page.locator(".feed")).to_contain_text("no line yet")
        page.close()


def test_the_log_of_the_trainer_is_one_key_away(page_of: PageOf) -> None:
    """`O` there and back; where there is none, the page states how it would come."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("O")
        page.wait_for_url("**/?page=feed&level=log")
        expect(page.locator(".feed")).to_contain_text("overwatch.sdk.logs has a handler")
        page.keyboard.press("O")
        page.wait_for_url(url)
        page.close()


def test_the_first_page_has_the_newest_facts(page_of: PageOf) -> None:
    """A few lines and the way to all of them."""
    many = tuple(_line(place / 10, f"fact {place}") for place in range(30))
    with Scene(_storm(*many, later=10.0)).served() as url:
        page = shown(page_of(url))
        assert [line.split()[-1] for line in _listed(page)] == [str(place) for place in range(22, 30)]
        assert text(page, ".feed .row") == "Feed following · 18/s all of it"
        page.get_by_role("link", name="all of it").click()
        expect(page.locator(".feed li")).to_have_count(30)
        page.close()


def test_new_lines_follow_and_stay_while_one_reads_further_up(page_of: PageOf) -> None:
    """At the newest line they come in; above it they are counted, and what is read does not move."""
    lines = tuple(_line(place / 100, f"fact {place}") for place in range(200))
    scene = Scene(_storm(*lines[:100], later=10.0))
    with scene.served() as url:
        page = shown(page_of(f"{url}?page=feed"))
        scene.show(_storm(*lines[50:110], later=11.0))
        expect(page.locator(".feed li")).to_have_count(110)
        expect(page.locator(".feed li").last).to_be_in_viewport()
        page.locator(".scroll").hover()
        page.mouse.wheel(0, -600)
        expect(page.locator(".feed .row")).to_contain_text("stopped")
        scene.show(_storm(*lines[100:130], later=12.0))
        expect(page.locator(".feed .row")).to_contain_text("20 newer below")
        assert len(_listed(page)) == 110
        page.mouse.wheel(0, 2000)
        expect(page.locator(".feed .row")).to_contain_text("following")
        expect(page.locator(".feed li")).to_have_count(130)
        page.close()


def test_what_was_not_received_is_shown(page_of: PageOf) -> None:
    """Two snapshots that share no line have something between them; another run begins anew."""
    scene = Scene(_storm(_line(0.0, "first"), later=1.0))
    with scene.served() as url:
        page = shown(page_of(f"{url}?page=feed"))
        expect(page.locator(".feed li")).to_have_count(1)
        scene.show(_storm(_line(50.0, "later"), later=60.0))
        expect(page.locator(".feed li")).to_have_count(3)
        assert "lines before this one were not received here" in _listed(page)[1]
        scene.show(scenario.without_slots())
        expect(page.locator("h1")).to_have_text("ant-1")
        expect(page.locator(".feed li")).to_have_count(0)
        page.close()


def test_a_lines_env_opens(page_of: PageOf) -> None:
    """The rest of the place stays."""
    with Scene(_storm()).served() as url:
        page = shown(page_of(f"{url}?page=feed&level=all"))
        page.get_by_role("link", name="env=17").click()
        expect(page.locator("#side h2")).to_contain_text("env 17")
        assert page.url == f"{url}?page=feed&env=17&level=all"
        page.close()


def test_lines_of_others_are_text_and_fit_a_phone(page_of: PageOf) -> None:
    """Markup, directions and a line without a blank."""
    bad = poisoned_snapshot(_storm(*_EVERY, _line(0.9, "x" * 3000)), HOSTILE)
    with Scene(bad).served() as url:
        page = shown(page_of(f"{url}?page=feed&level=all", size=PHONE))
        assert len(_listed(page)) == len(_EVERY) + 1
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.close()

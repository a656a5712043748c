"""Foreign text on the page: it is text, wherever it stands, and the page stays whole."""

import unicodedata
from urllib.parse import quote

import msgspec
import pytest
from playwright.sync_api import Page

from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import eventually
from tests.overwatch.tui import drawers, hostile
from tests.overwatch.web.browser import PHONE, PageOf, Scene, cleaned, shown

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>&lt;i&gt;<a href=javascript:alert(3)>x</a>"
FOREIGN = "img, script:not([src]), iframe, object, embed, style, [onmouseover]"
TEXTS = {
    "markup": MARKUP,
    "attribute": "\" onmouseover=alert(1) style='color:red' x=\"",
    "bidi": "abc\u202edcba\u2066\u202eend\u2067",
    "long": "x" * 10_000,
    "long words": "lang " * 2_000,
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f\u2028\u2029\ufeff",
    "combining": "a" + "\u0300" * 400,
    "wide": "\u6f22\u5b57" * 200,
    "template": "${alert(1)}{{7*7}}%s",
    "url": "javascript:alert(1)//?page=help&run=other#x",
    "proto": "__proto__",
}
PAGES = ("flight", "runs", "compare", "help")
MADE = """(foreign) => ({
  elements: [...document.querySelectorAll(foreign)].length,
  bad: [...document.querySelectorAll("a[href]")].filter((one) => !/^https?:$/.test(one.protocol)).length,
  wide: [...document.querySelectorAll("body *")].filter((one) => !one.closest(".wide"))
    .filter((one) => one.scrollWidth > innerWidth || one.getBoundingClientRect().right > innerWidth + 1)
    .map((one) => one.outerHTML.slice(0, 80)),
  width: document.documentElement.scrollWidth,
  text: document.body.innerText,
})"""


def poisoned(text: str) -> Snapshot:
    """The scenario with an env open, the text behind every word of it, and an address that is still one."""
    full = drawers.opened()
    bad = hostile.poisoned_snapshot(
        msgspec.structs.replace(full, envs=full.envs[:6], feed=full.feed[:6]), text
    )
    # A run's id has at most so many characters: what is longer comes to no collector.
    return msgspec.structs.replace(bad, run=msgspec.structs.replace(bad.run, run_id=bad.run.run_id[:200]))


def checked(page: Page, width: int) -> None:
    """Fails where text became an element, a link that is no address, too wide, or turned around."""
    made = page.evaluate(MADE, FOREIGN)
    assert (made["elements"], made["bad"]) == (0, 0)
    assert made["width"] <= width, (page.url[:80], made["wide"][-5:])
    assert not {"\u202e", "\u2066", "\u2067", "\ufeff", "\x07"} & set(made["text"])


@pytest.mark.parametrize("name", TEXTS)
def test_foreign_text_is_text(page_of: PageOf, name: str) -> None:
    """In every string of a snapshot, on every page, on a phone; the verdict has it whole."""
    text, snapshot = TEXTS[name], poisoned(TEXTS[name])
    with Scene(snapshot).served() as url:
        page = page_of(url, size=PHONE)
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        for one in PAGES:
            page.goto(f"{url}?page={one}&env=9&finding={quote(text[:40])}")
            checked(shown(page), PHONE[0])
        page.goto(url)
        verdict = shown(page).locator(".verdict .text").text_content()
        page.close()

    assert verdict == cleaned(snapshot.verdict.text)


def test_text_that_turns_around_turns_only_itself(page_of: PageOf) -> None:
    """What stands beside a right-to-left override keeps its place and its order."""
    snapshot = poisoned(TEXTS["bidi"])
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        order = page.evaluate(
            """() => [...document.querySelectorAll(".verdict, .alarm, .row")].map((line) =>
                [...line.children].filter((one) => one.textContent).map((one) => one.getBoundingClientRect())
                .map(({left, top}) => [Math.round(top / 40), left]))"""
        )
        page.close()

    assert len(order) > 3
    for line in order:
        tops = {top for top, _ in line}
        for top in tops:
            lefts = [left for where, left in line if where == top]
            assert lefts == sorted(lefts)


def test_any_text_leaves_the_page_whole(page_of: PageOf) -> None:
    """One page through a hundred foreign texts: it goes on, and shows the last one."""
    texts = [
        one
        for one in hostile.corpus(2000)[::20]
        if not any(unicodedata.category(char) == "Cs" for char in one)
    ]
    scene = Scene(poisoned("first"))
    with scene.served() as url:
        page = shown(page_of(url))
        for text in texts:
            snapshot = poisoned(text)
            scene.show(snapshot)
        wanted = cleaned(snapshot.verdict.text)
        eventually(lambda: page.locator(".verdict .text").text_content() == wanted)
        checked(page, 1400)
        page.close()

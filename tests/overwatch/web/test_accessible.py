"""The page for everybody: axe-core finds nothing, keys reach everything, and colour is never alone."""

import os
from pathlib import Path

import pytest

from tests.overwatch.tui import drawers, scenario, states
from tests.overwatch.web.browser import PHONE, WIDE, PageOf, Scene, shown

AXE = Path("build/node/node_modules/axe-core/axe.min.js")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = "(tags) => axe.run({runOnly: tags, resultTypes: ['violations']})"
LOOKS = [
    (size, scheme, more) for size in (WIDE, PHONE) for scheme in ("light", "dark") for more in ("", "blind")
]
PALETTE = "(palette) => document.documentElement.setAttribute('data-palette', palette)"
SCENES = {"storm": scenario.storm, "drawer": drawers.opened, "ended sick": states.ended_sick}


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core, which the browser evaluates: the page's policy would not load it."""
    if not AXE.is_file():
        why = "axe-core is missing: make types-page installs it"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page_name",
    [
        "flight",
        "policy",
        "curves",
        "heat",
        "findings",
        "feed",
        "services",
        "runs",
        "compare",
        "config",
        "help",
    ],
)
def test_axe_finds_nothing(page_of: PageOf, axe: str, page_name: str) -> None:
    """No violation of WCAG 2.2 AA or of its best practices, contrast too, in any colours and on a phone."""
    found = []
    with Scene(drawers.opened()).served() as url:
        page = shown(page_of(f"{url}?page={page_name}&env=9"))
        page.evaluate(axe)
        for (width, height), scheme, palette in LOOKS:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.evaluate(
                "(palette) => document.documentElement.setAttribute('data-palette', palette)", palette
            )
            found += [
                (width, scheme, palette, one["id"], [node["html"][:160] for node in one["nodes"][:3]])
                for one in page.evaluate(RUN, RULES)["violations"]
            ]
        page.close()

    assert found == []


def test_tab_reaches_every_link_and_button(page_of: PageOf) -> None:
    """In order, without a trap."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        wanted = page.evaluate(
            """[...document.querySelectorAll("a[href], button, select, input")]
            .filter((one) => one.checkVisibility()).length"""
        )
        reached = set()
        for _ in range(wanted + 2):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        page.close()

    assert len(reached) >= wanted


@pytest.mark.parametrize("name", SCENES)
def test_severities_are_words_too(page_of: PageOf, name: str) -> None:
    """Whatever has a colour of severity has its word."""
    with Scene(SCENES[name]()).served() as url:
        page = shown(page_of(url))
        words = page.evaluate(
            """() => [...document.querySelectorAll("[data-severity]")]
            .filter((one) => one.checkVisibility() && !one.closest("[aria-hidden]"))
            .map((one) => [one.dataset.severity, one.innerText.toUpperCase()])"""
        )
        page.close()

    assert words
    known = {"critical": "CRIT", "warning": "WARN", "info": "INFO", "ok": "OK"}
    assert [
        text for severity, text in words if known.get(severity, severity.upper()) not in text.upper()
    ] == []

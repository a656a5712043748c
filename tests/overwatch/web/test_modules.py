"""The page's files: each is used, none is long, and nothing in them makes markup out of text."""

import re
from pathlib import Path

import pytest

from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene, shown

WEB = Path("src/overwatch/web")
FILES = sorted(path for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".html"))
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MOST_OF_FILE, MOST_OF_FUNCTION, WIDEST = 400, 60, 150
BEGIN = re.compile(
    r"^(?P<indent> *)(export )?(async )?(function\b|(?!if\b|for\b|while\b|switch\b)[#\w]+\(.*\) \{$)"
)
FORBIDDEN = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
    'setAttribute("style', "createContextualFragment", "DOMParser", "localStorage", "sessionStorage",
    "http://", "https://",
)  # fmt: skip


def functions(lines: list[str]) -> dict[str, int]:
    """Where each function begins, and how many lines it has, by its indentation."""
    found = {}
    for number, line in enumerate(lines):
        begun = BEGIN.match(line)
        if begun and line.endswith("{"):
            end = next(at for at in range(number, len(lines)) if lines[at].startswith(begun["indent"] + "}"))
            found[f"{number + 1}: {line.strip()}"] = end - number + 1
    return found


def test_the_page_is_small() -> None:
    """Files and functions are small; `tests/contracts/size.toml` limits the whole."""
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in FILES}

    assert {path.name: len(some) for path, some in lines.items() if len(some) > MOST_OF_FILE} == {}
    wide = {f"{path}:{at}": len(line) for path in SCRIPTS for at, line in enumerate(lines[path], 1)}
    assert {place: width for place, width in wide.items() if width > WIDEST} == {}
    long = {f"{path}:{name}": size for path in SCRIPTS for name, size in functions(lines[path]).items()}
    assert {name: size for name, size in long.items() if size > MOST_OF_FUNCTION} == {}
    assert len(long) > 50


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_text_becomes_markup(path: Path) -> None:
    """Words that make markup or code of text, keep what should not be kept, or name another host."""
    source = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")

    assert [word for word in FORBIDDEN if word in source] == []


def test_every_module_is_loaded_and_every_panel_is_in_the_table(page_of: PageOf) -> None:
    """A file that nothing imports is forgotten; so is a panel without a row, or one without its own name."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        loaded = page.evaluate(
            "performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)"
        )
        panels = page.evaluate("import('/web/app.js').then(({PANELS}) => PANELS.map((one) => one.name))")
        pages = page.evaluate(
            """import('/web/app.js').then(({PANELS, PAGES}) =>
            [PANELS.flatMap((one) => one.pages ?? []), PAGES.map(([name]) => name)])"""
        )
        page.close()

    assert {f"/web/{path.relative_to(WEB)}" for path in SCRIPTS} <= set(loaded)
    made = [path.stem for path in WEB.glob("panels/*.js") if "export const panel =" in path.read_text()]
    assert sorted(panels) == sorted(made)
    assert set(pages[0]) == set(pages[1])

"""A page in one file: HTML whose text is escaped, a style for dark and light, and nothing from a network.

Markup is its own type, so that text can only come in through `text` or an attribute, both escaped. Pure; must
not know what is shown.
"""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NewType

Markup = NewType("Markup", str)
"""HTML that is safe to put into a page."""

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
STYLE: Final = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_VOID: Final = frozenset({"meta", "br", "line", "rect", "circle", "path", "polyline"})


def text(word: object) -> Markup:
    """Any text, escaped."""
    return Markup(html.escape(str(word), quote=True))


def tag(name: str, /, *inside: Markup, **attributes: object) -> Markup:
    """An element. Attributes that are `None` are left out; `class_` is `class`, `a_b` is `a-b`."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not inside:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{''.join(inside)}</{name}>")


def join(parts: Iterable[Markup]) -> Markup:
    """One after another."""
    return Markup("".join(parts))


def table(head: Iterable[object], rows: Iterable[Sequence[Markup]]) -> Markup:
    """A table. A cell that is no `td` becomes one; a heading stands where the cells below it do.

    Raises `ValueError` for a row without a cell for each heading: the rest would be under wrong ones.
    """
    cells = [[one if one.startswith("<td") else tag("td", one) for one in row] for row in rows]
    words = list(head)
    for row in cells:
        if len(row) != len(words):
            raise ValueError(
                f"a row of {len(row)} cells below {len(words)} headings: {', '.join(map(str, words))}"
            )
    first = cells[0] if cells else [Markup("")] * len(words)
    kinds = ["num" if one.startswith('<td class="num"') else None for one in first]
    top = tag("tr", *(tag("th", text(word), class_=kind) for word, kind in zip(words, kinds, strict=True)))
    body = join(tag("tr", *row) for row in cells)
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_="wide")


def section(title: str, *inside: Markup, note: str = "", anchor: str | None = None) -> Markup:
    """A part of a page with its heading."""
    heading = tag("h2", text(title), tag("small", text(note)) if note else Markup(""))
    return tag("section", heading, *inside, id=anchor)


def page(title: str, *body: Markup) -> str:
    """The whole page; ends without a newline."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", text(title)),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}"

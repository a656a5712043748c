"""The page as one file: its modules as one script, pinned by its hash, over what was kept of a run.

Owns how modules become one script: each becomes a function that gives its exports, in the order in which they
need one another. Takes what the page's own modules use of the language, and refuses the rest. Pure; must not
know what was kept.
"""

import base64
import gzip
import hashlib
import html
import posixpath
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from overwatch.analyse.page import Markup

_IMPORT: Final = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "(\.{1,2}/[\w./-]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_STYLE: Final = '<link rel="stylesheet" href="/web/style.css">'
_WAITING: Final = '<p class="muted">Connecting …</p>'
_SCRIPT: Final = '<script type="module" src="/web/app.js"></script>'


class Report(NamedTuple):
    """What is read first, with or without scripts."""

    body: Markup
    style: str
    """Of what is in the element `#report` alone."""


class BundleError(ValueError):
    """A module has what cannot stand in one script; the message names the module and the line."""


def script(modules: Mapping[str, str], entry: str) -> str:
    """One script of all modules that `entry` needs; by their paths. Raises `BundleError`."""
    done: dict[str, str] = {}
    _add(entry, modules, done, ())
    return "\n".join(["const M = {};", *done.values()])


def _add(name: str, modules: Mapping[str, str], done: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise BundleError(f"{' needs '.join((*above, name))}: break the circle")
    if name not in modules:
        raise BundleError(f"{above[-1] if above else 'the page'} needs {name}, which is not there")
    text, imports = modules[name], list[str]()

    def imported(found: "re.Match[str]") -> str:
        """Return an import statement as one of the bundle, and note what it needs."""
        needed = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[2]))
        imports.append(needed)
        names = found[1].removeprefix("* as ").replace(" as ", ": ")
        return f'const {names} = M["{needed}"];'

    text = _IMPORT.sub(imported, text)
    exported = [found[1] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub("", text)
    left = _LEFT.search(text)
    if left is not None:
        raise BundleError(f"{name}: {left[0]!r} cannot stand in one script; write one name an export")
    for needed in imports:
        if needed not in done:
            _add(needed, modules, done, (*above, name))
    done[name] = f'M["{name}"] = (() => {{\n{text}\nreturn {{ {", ".join(exported)} }};\n}})();'


def page(files: Mapping[str, str], recorded: bytes, title: str, report: Report) -> str:
    """The whole page with a report and what is `recorded`, which is JSON. Raises `BundleError`."""
    code, style = script(files, "app.js"), files["style.css"] + report.style
    for text, end in ((code, "</script"), (style, "</style")):
        if end in text:
            raise BundleError(f"{end!r} stands in what is to be put between tags")
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    shell = files["index.html"]
    for old, new in (
        (
            '<meta charset="utf-8">',
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        ),
        ("<title>Overwatch</title>", f"<title>{html.escape(title)}</title>"),
        (_STYLE, f"<style>{style}</style>"),
        (_SCRIPT, ""),
        (_WAITING, f'<section id="report">{report.body}</section>'),
        ("</body>", f'{_data(recorded)}\n<script type="module">{code}</script>\n</body>'),
    ):
        if shell.count(old) != 1:
            raise BundleError(f"index.html has {old!r} {shell.count(old)} times; it must have it once")
        shell = shell.replace(old, new)
    return shell


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data(recorded: bytes) -> str:
    """The same bytes each time: gzip's header would have the time."""
    packed = base64.b64encode(gzip.compress(recorded, mtime=0)).decode()
    return f'<script type="text/plain" id="recorded">{packed}</script>'

"""The page as one file: modules become one script, pinned by its hash."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

import overwatch.web
from overwatch.analyse.bundle import BundleError, Report, page, script
from overwatch.analyse.page import Markup

WEB = Path(overwatch.web.__file__).parent
FILES = {
    str(file.relative_to(WEB)): file.read_text(encoding="utf-8")
    for file in WEB.rglob("*")
    if file.suffix in {".js", ".css", ".html"}
}

REPORT = Report(Markup("<p>what went wrong</p>"), "#report{color:red}")


def test_modules_come_after_what_they_need() -> None:
    """Each stands once, behind its imports, whichever of two needs it first."""
    modules = {
        "app.js": 'import { a } from "./panels/a.js";\nimport * as dom from "./dom.js";\na(dom);',
        "panels/a.js": 'import { h } from "../dom.js";\nexport const a = h;',
        "dom.js": "export function h() {}",
    }
    assert re.findall(r'^M\["(.*)"\] =', script(modules, "app.js"), re.MULTILINE) == [
        "dom.js",
        "panels/a.js",
        "app.js",
    ]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (
            {"app.js": 'import { a } from "./a.js";', "a.js": 'import { b } from "./app.js";'},
            "break the circle",
        ),
        ({"app.js": 'import { a } from "./gone.js";'}, "gone.js, which is not there"),
        ({"app.js": "export default 3;"}, "export default 3;"),
        ({"app.js": "export const { a, b } = c;"}, "write one name an export"),
        ({"app.js": 'import "./a.js";'}, 'import "./a.js";'),
    ],
)
def test_what_cannot_stand_in_one_script_is_refused_by_name(modules: dict[str, str], message: str) -> None:
    """Nothing is left out or changed in silence."""
    with pytest.raises(BundleError, match=re.escape(message)):
        script(modules, "app.js")


def test_the_page_runs_its_own_script_and_nothing_else() -> None:
    """The policy has the hashes of the one script and the one style that are there, and no other source."""
    whole = page(FILES, b"{}", "run", REPORT)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', whole)
    assert policy is not None
    for tag, source in (('script type="module"', "script-src"), ("style", "style-src")):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag.split()[0]}>", whole, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}';" in policy[1]
    assert "unsafe" not in policy[1]
    assert "'self'" not in policy[1]
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', whole)


def test_what_is_kept_cannot_end_its_element() -> None:
    """Whatever a trainer called itself, it is data, and the title is text."""
    hostile = "</script></title><script>alert(1)</script>"
    whole = page(FILES, json.dumps({"name": hostile}).encode(), hostile, REPORT)
    (packed,) = re.findall(r'<script type="text/plain" id="recorded">([\w+/=]*)</script>', whole)
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == {"name": hostile}
    assert "alert(1)</script>" not in whole
    assert page(FILES, b"{}", "run", REPORT) == page(FILES, b"{}", "run", REPORT)

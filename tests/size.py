"""How large the project is, in the units of `tests/contracts/size.toml`: `python -m tests.size [--lower]`.

A token is a token of Python 3.11's tokenizer. Imports, docstrings, bare strings, comments and layout do not
count. A string of more than 40 words counts its words, so that code cannot hide in text. `--lower` writes
each figure that fell into the contract; no option raises a row.
"""

import ast
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CONTRACT: Final = ROOT / "tests/contracts/size.toml"
ROOTS: Final = ("src/overwatch", "src/overwatch_rl", "tests")
BESIDE: Final = ("docs", "examples", "helm", "tools")
"""Folders with some Python; each is one row."""
DATA: Final = (".json", ".toml", ".md", ".j2", ".yaml", ".yml", ".txt", ".css", ".tcss")
LAYOUT: Final = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
)  # fmt: skip
LONG_STRING: Final = 40
COUNTED: Final = ROOT / "build/tokens.json"
"""Tokens by digest of the source: to count all anew takes ten seconds."""
GENERATED: Final = re.compile(r"<!-- (Generated|Written) by ")

Figures = dict[str, dict[str, float]]


def tokens(text: str) -> int:
    """Return how many tokens of code a Python source has."""
    excluded: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        bare = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if bare or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            excluded.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.start[0] not in excluded:
            words = len(token.string.split()) if token.type == tokenize.STRING else 1
            count += words if words > LONG_STRING else 1
    return count


def _sources(folder: str) -> Iterable[Path]:
    return (path for path in sorted((ROOT / folder).rglob("*.py")) if "_pb2" not in path.name)


class Counter:
    """Count tokens, each source once as long as it does not change."""

    def __init__(self) -> None:
        try:
            self._known: dict[str, int] = json.loads(COUNTED.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}
        self._used: dict[str, int] = {}

    def count(self, path: Path) -> int:
        """Return the tokens of a file."""
        text = path.read_text(encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._used[digest] = self._known.get(digest) or tokens(text)
        return self._used[digest]

    def save(self) -> None:
        """Write the counts of the files that there are now."""
        COUNTED.parent.mkdir(exist_ok=True)
        part = COUNTED.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(self._used), encoding="utf-8")
        part.replace(COUNTED)


def _packages(root: str, counter: Counter) -> dict[str, float]:
    """Return the tokens of each package directly below a root, and their total."""
    counts: dict[str, float] = {"total": 0}
    for path in _sources(root):
        parts = path.relative_to(ROOT / root).parts
        package = parts[0] if len(parts) > 1 else "(root)"
        size = counter.count(path)
        counts[package] = counts.get(package, 0) + size
        counts["total"] += size
    return {name: count for name, count in counts.items() if count}


def _page() -> dict[str, float]:
    """Return lines and compressed bytes of the page, without vendored libraries."""
    files = [
        path
        for path in sorted((ROOT / "src/overwatch/web").rglob("*"))
        if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts
    ]
    texts = [path.read_bytes() for path in files]
    return {
        "lines": sum(len(text.splitlines()) for text in texts),
        "gzip_bytes": len(gzip.compress(b"".join(texts), mtime=0)),
    }


def _words() -> dict[str, float]:
    """Return the words of `docs/`: all, and those on pages that no program writes."""
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    by_hand = [page for page in pages if not GENERATED.match(page)]
    return {
        "all": sum(len(page.split()) for page in pages),
        "by_hand": sum(len(page.split()) for page in by_hand),
    }


def _data() -> dict[str, float]:
    """Return the bytes of data files beside the code, by package: what moves out of code is seen here."""
    counts: dict[str, float] = {}
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in DATA and path.is_file() and "web" not in path.parts:
            package = "/".join(path.relative_to(ROOT / "src").parts[:2])
            counts[package] = counts.get(package, 0) + path.stat().st_size
    counts["dashboards"] = sum(path.stat().st_size for path in (ROOT / "dashboards/grafana").glob("*.json"))
    return counts


def _marks() -> dict[str, float]:
    """Return how many checks the sources switch off."""
    text = "\n".join(path.read_text(encoding="utf-8") for root in ROOTS for path in _sources(root))
    return {"type_ignores": len(re.findall(r"#\s*type:\s*ignore", text))}


def undocumented() -> float:
    """Return the share of public functions of `src/` without a docstring."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in _sources("src")]
    public = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    return round(sum(ast.get_docstring(node) is None for node in public) / len(public), 4)


def measure() -> Figures:
    """Return every figure that the contract limits, by table and row."""
    counter = Counter()
    figures: Figures = {f"tokens.{root}": _packages(root, counter) for root in ROOTS}
    beside = {folder: sum(map(counter.count, _sources(folder))) for folder in BESIDE}
    counter.save()
    figures["tokens.beside"] = {folder: count for folder, count in beside.items() if count}
    figures["page"] = _page()
    figures["words"] = _words()
    figures["data"] = _data()
    figures["marks"] = {**_marks(), "undocumented_share": undocumented()}
    return figures


def rows(text: str) -> Figures:
    """Return the limits of a contract, by table and row; `transition` is left out."""
    table = tomllib.loads(text)
    limits: Figures = {f"tokens.{root}": dict(row) for root, row in table["tokens"].items()}
    limits.update({name: dict(table[name]) for name in ("page", "words", "data", "marks")})
    return limits


def transitions(text: str) -> list[dict[str, object]]:
    """Return the replacements that may stand beside what they replace."""
    return list(tomllib.loads(text).get("transition", ()))


def write(limits: Figures, header: str) -> str:
    """Return the text of a contract."""
    lines = [header.rstrip()]
    for table, row in limits.items():
        name, _, root = table.partition(".")
        lines += ["", f'[{name}."{root}"]' if root else f"[{name}]"]
        lines += [
            f'"{key}" = {value:g}' if value < 1 else f'"{key}" = {value:.0f}' for key, value in row.items()
        ]
    return "\n".join(lines) + "\n"


def lowered(limits: Figures, figures: Figures) -> Figures:
    """Return the contract's rows, each at its figure where that is less; rows without a figure go."""
    return {
        table: {key: min(value, figures[table][key]) for key, value in row.items() if key in figures[table]}
        for table, row in limits.items()
    }


def main() -> None:
    """Print the figures beside their limits, and lower the limits if asked."""
    text = CONTRACT.read_text(encoding="utf-8")
    limits, figures = rows(text), measure()
    for table, row in figures.items():
        print(table)
        for key, value in row.items():
            print(f"  {key:24s} {value:>12,.6g}  limit {limits.get(table, {}).get(key, 0):>12,.6g}")
    if "--lower" in sys.argv[1:]:
        head = text.split("\n[", 1)[0]
        beside = [f"\n[[transition]]{part}" for part in text.split("\n[[transition]]")[1:]]
        CONTRACT.write_text(write(lowered(limits, figures), head) + "".join(beside), encoding="utf-8")


if __name__ == "__main__":
    main()

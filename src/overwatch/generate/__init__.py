"""From the catalogue and the types to committed files: schema and reference, each by one pure function.

A generated file names its generator; edit the row or the type and run `make generate`, never the file.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from overwatch.generate import chart, protos, registry
from overwatch.generate.boards import Board
from overwatch.generate.bounds_page import bounds_page
from overwatch.generate.catalog_page import catalog_page
from overwatch.generate.conventions_page import conventions_page
from overwatch.generate.page_types import page_types
from overwatch.generate.rules import Plan, case_file, recordings, rule_file, steady_alerts, windowed_alerts
from overwatch.generate.runbooks_page import runbooks_page
from overwatch.generate.schema import snapshot_schema

_ROOT: Final = Path(__file__).parents[3]
_LENGTHS: Final = {"6h": Plan(run_length_s=21_600), "24h": Plan(), "7d": Plan(run_length_s=604_800)}
"""Lengths of runs for which rules are shipped; `overwatch rules` makes them for any other."""


def _rules() -> str:
    return rule_file(steady_alerts(Plan()), Plan(), recorded=recordings(Plan()))


def _rule_cases() -> str:
    return case_file("../overwatch.yaml", steady_alerts(Plan()), Plan())


def _windows(length: str) -> str:
    plan = _LENGTHS[length]
    return rule_file(windowed_alerts(plan), plan, f"-{length}")


def _window_cases(length: str) -> str:
    plan = _LENGTHS[length]
    return case_file(f"../windows-{length}.yaml", windowed_alerts(plan), plan)


_CHARTED: Final = {"dashboards/grafana/": "dashboards", "dashboards/rules/": "rules"}
"""What the Helm chart has copies of, since it can read only what lies in it: where from, to which folder."""


def _copies(files: Mapping[str, Callable[[], str]]) -> dict[str, Callable[[], str]]:
    """The chart's own copies of generated files."""
    return {
        f"helm/overwatch/files/{folder}/{name.removeprefix(source)}": make
        for name, make in files.items()
        for source, folder in _CHARTED.items()
        if name.startswith(source) and "/" not in name.removeprefix(source)
    }


_ORIGINALS: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "otel/snapshot.schema.json": snapshot_schema,
        "src/overwatch/web/types.d.ts": page_types,
        "docs/catalog.md": catalog_page,
        "docs/runbooks.md": runbooks_page,
        "docs/bounds.md": bounds_page,
        "dashboards/rules/overwatch.yaml": _rules,
        "dashboards/rules/tests/overwatch.yaml": _rule_cases,
        **{f"dashboards/rules/windows-{length}.yaml": partial(_windows, length) for length in _LENGTHS},
        **{
            f"dashboards/rules/tests/windows-{length}.yaml": partial(_window_cases, length)
            for length in _LENGTHS
        },
        "docs/semantic-conventions.md": conventions_page,
        **registry.FILES,
        **protos.FILES,
        "helm/overwatch/values.schema.json": chart.values_schema,
        "helm/overwatch/README.md": chart.values_page,
    }
)
_BOARDS: Final = {board.file: (_ROOT / board.file).read_text for board in Board}
"""Edited in Grafana, not generated; the chart has copies."""
FILES: Final = MappingProxyType[str, Callable[[], str]]({**_ORIGINALS, **_copies({**_ORIGINALS, **_BOARDS})})
"""Path below the project's root to the function that makes the file's text."""


def stale_files(root: Path) -> list[str]:
    """Committed files that differ from what their generator makes now."""
    return [name for name, make in FILES.items() if _read(root / name) != make()]


def write_files(root: Path) -> list[str]:
    """Write every file that is stale; returns their names."""
    changed = stale_files(root)
    for name in changed:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(FILES[name](), encoding="utf-8")
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None

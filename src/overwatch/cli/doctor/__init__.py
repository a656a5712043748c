"""`overwatch doctor`: what on this machine will not work, and what to do about it.

Rules: nothing is changed, nothing is left behind; every area has a deadline of its own; a check that fails
in a way nobody thought of is a verdict too. Status 0 where all is well, 1 with warnings, 2 with failures.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from overwatch.cli.configured import file_option, sets_option
from overwatch.cli.doctor.verdict import State, Verdict, failure
from overwatch.cli.streams import until_unread

if TYPE_CHECKING:
    from overwatch.collector.settings import CollectorConfig

AREAS: Final = ("config", "ports", "disk", "gpu", "clock", "versions", "terminal", "collector")
_MARKS: Final = {State.OK: "ok", State.WARNING: "WARN", State.FAILURE: "FAIL"}
Check = Callable[[], Iterator[Verdict]]


@click.command()
@file_option
@sets_option
@click.option("--endpoint", metavar="URL", help="A collector to send a real, empty OTLP request to.")
@click.option(
    "--only", "areas", multiple=True, type=click.Choice(AREAS), help="Only this; more than once for several."
)
@click.option("--format", "fmt", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(
    path: Path | None, sets: tuple[str, ...], endpoint: str | None, areas: tuple[str, ...], fmt: str
) -> None:
    """Say what on this machine will not work, and what to do.

    Looks at configuration, ports, disk, GPUs, clocks, versions, the terminal and the collector. Status 0
    where all is well, 1 with warnings, 2 with failures.
    """
    verdicts = [
        verdict
        for area, check in _checks(path, sets, endpoint).items()
        if not areas or area in areas
        for verdict in _safely(area, check)
    ]
    with until_unread():
        click.echo(_json(verdicts) if fmt == "json" else _text(verdicts))
    sys.exit(max((verdict.state.rank for verdict in verdicts), default=0))


def _checks(path: Path | None, sets: tuple[str, ...], endpoint: str | None) -> dict[str, Check]:
    from overwatch import config as configuration
    from overwatch.cli.doctor import clocks, disks, files, gpus, ports, reach, screens, versions
    from overwatch.sdk.exporter.spool import spool_root

    config: CollectorConfig | str
    try:
        config, fixed = configuration.load_named(path, sets)
    except ValueError as error:
        config, fixed = str(error), frozenset()
    held = configuration.load(None, ()) if isinstance(config, str) else config
    texts = [configuration.shipped(), *sets, *([] if path is None else [_read(path)])]
    return {
        "config": partial(files.files, path, config, os.environ, texts),
        "ports": partial(ports.ports, held, fixed),
        "disk": lambda: disks.disks(held, spool_root()),
        "gpu": gpus.gpus,
        "clock": clocks.clocks,
        "versions": versions.versions,
        "terminal": screens.screens,
        "collector": partial(reach.reach, endpoint),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _safely(area: str, check: Check) -> Iterator[Verdict]:
    """A check's verdicts; one that breaks is itself a failure, and the others go on."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 a border: whatever a machine does, the report is finished
        said = f"the check itself failed: {type(error).__name__}: {error}"
        yield failure(
            area, said, f"run the others with --only; report this with `--only {area} --format json`"
        )


def _json(verdicts: list[Verdict]) -> str:
    counts = {state.value: sum(one.state is state for one in verdicts) for state in State}
    listed = [msgspec.to_builtins(one, enc_hook=str) for one in verdicts]
    return json.dumps({"verdicts": listed, "counts": counts}, indent=2)


def _text(verdicts: list[Verdict]) -> str:
    lines = []
    for one in verdicts:
        lines.append(f"{_MARKS[one.state]:4}  {one.area:9}  {one.found}")
        if one.fix:
            lines.append(f"{'':4}  {'':9}  → {one.fix}")
    bad = [sum(one.state is state for one in verdicts) for state in (State.FAILURE, State.WARNING)]
    lines.append(f"{len(verdicts)} looked at: {bad[0]} failures, {bad[1]} warnings")
    return "\n".join(lines)

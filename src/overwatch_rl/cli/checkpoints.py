"""The command that shows and verifies the checkpoints of a run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overwatch_rl.cli.common import PLACE, usage_errors

if TYPE_CHECKING:
    from overwatch_rl.checkpoints.listing import Listed


@click.command()
@click.argument("place", type=PLACE)
@click.option("--verify", "is_read", is_flag=True, help="Read each file and compare it with its manifest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def checkpoints(place: Path | str, *, is_read: bool, as_json: bool) -> None:
    """List the checkpoints of a run in a folder or at a URL, as s3://bucket/run; 1 where one is damaged."""
    with usage_errors():
        import msgspec

        from overwatch_rl.checkpoints.listing import listed

        found = listed(place, is_read=is_read)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo("\n".join(_lines(found)) if found else f"{place} holds no checkpoint")
    sys.exit(1 if any(one.fault is not None for one in found) else 0)


def _lines(found: "list[Listed]") -> list[str]:
    rows = [f"{'version':14} {'updates':>8} {'MiB':>8} {'return':>9} {'evaluated':>9}  state"]
    for one in found:
        marks = [name for name, is_so in (("latest", one.is_latest), ("best", one.is_best)) if is_so]
        state = "whole" if one.fault is None else f"damaged: {one.fault}"
        rows.append(
            f"{one.version:14} {_cell(one.updates, 'd'):>8} {one.size_bytes / 2**20:>8.2f} "
            f"{_cell(one.score, '+.3f'):>9} {_cell(one.evaluated, '+.3f'):>9}  {', '.join([state, *marks])}"
        )
    return rows


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

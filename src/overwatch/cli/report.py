"""`overwatch report`: one run as one page."""

from pathlib import Path

import click

from overwatch.cli.opening import PATH, read_stories, run_option, saying, write


@click.command(short_help="Write a recording as one HTML page.")
@click.argument("path", type=PATH)
@click.option("-o", "--out", type=PATH, help="The file; `RUN.html` here without.", metavar="FILE")
@run_option
def report(path: Path, out: Path | None, run_id: str | None) -> None:
    """Write one self-contained page: what went wrong, when, why, and what to do.

    It needs no network and no other file: findings with their next steps, policy curves with their limits,
    what held each GPU back, the worst envs, seed lifecycles, configuration. `-o -` prints it.

    \b
      overwatch report runs/42 -o run.html
      overwatch report runs/42 --run ppo-ant-3 -o -

    Exit codes: 0 written, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.report import report as written

    with saying():
        (story,) = read_stories(path, run_id)
        text = written(story)
        where = out or Path(_name(story.run.run_id))
        write(text, None if str(where) == "-" else where)
    if str(where) != "-":
        click.echo(f"{where}: {len(text) // 1024:,} KiB")


def _name(run_id: str) -> str:
    """A file name of a run's id, which may hold anything."""
    kept = "".join(one if one.isalnum() or one in "-_." else "_" for one in run_id).lstrip(".")
    return f"{kept[:100] or 'run'}.html"

"""`overwatch audit`: a recording's findings as an exit code, for CI."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from overwatch.cli.opening import PATH, BadInputError, read_stories, saying, write

if TYPE_CHECKING:
    from overwatch.analyse.audit import Audited

_WRONG = 1


@click.command(short_help="Fail where a recording has findings; for CI.")
@click.argument("path", type=PATH)
@click.option("--fail-on", type=click.Choice(["warning", "critical"]), default="critical", show_default=True,
              help="Findings that are at least so bad count.")  # fmt: skip
@click.option("--max", "most", type=click.IntRange(min=0), default=0, show_default=True,
              help="So many of them are allowed.")  # fmt: skip
@click.option(
    "--ignore", "ignored", multiple=True, metavar="CODE", help="A kind of finding that never counts."
)
@click.option("--format", "fmt", type=click.Choice(["text", "json", "junit"]), default="text",
              show_default=True)  # fmt: skip
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@click.option("--run", "run_id", metavar="ID", help="Which run; all without.")
def audit(
    path: Path, fmt: str, *, out: Path | None, run_id: str | None, **limits: int | str | tuple[str, ...]
) -> None:
    """Say whether runs went well enough for a script to go on.

    A finding counts at the worst that it was, whether or not it cleared.

    \b
      overwatch audit runs/42 --fail-on warning
      overwatch audit runs/42 --ignore sync-bound --max 2
      overwatch audit runs/42 --format junit -o audit.xml

    Exit codes: 0 no more findings than are allowed, 1 more of them, 2 bad input.
    """  # noqa: D301
    from overwatch.analyse.audit import AuditConfig
    from overwatch.analyse.audit import audit as audited

    with saying():
        ignored = limits["ignored"] if isinstance(limits["ignored"], tuple) else ()
        config = AuditConfig(fail_on=str(limits["fail_on"]), most=int(str(limits["most"])), ignored=ignored)
        for code in ignored:
            _check_code(code)
        told = audited(read_stories(path, run_id, every=True, facts=False), config)
    write(_written(told, fmt), out)
    raise SystemExit(0 if told.ok else _WRONG)


def _check_code(code: str) -> None:
    """A user's own rules have codes of their own; one that nearly is a known one is a slip."""
    import difflib

    from overwatch.catalog.runbooks import RUNBOOKS, has_runbook

    near = [] if has_runbook(code) else difflib.get_close_matches(code, RUNBOOKS, 1, 0.8)
    if near:
        raise BadInputError(f"--ignore {code} is no kind of finding; did you mean {near[0]}?")


def _written(told: "Audited", fmt: str) -> str:
    from overwatch.analyse.audit import junit, line

    if fmt == "junit":
        return junit(told)
    if fmt == "json":
        return msgspec.json.encode(
            {
                "ok": told.ok,
                "fail_on": told.config.fail_on,
                "max": told.config.most,
                "ignored": told.config.ignored,
                "runs": told.runs,
                "counted": told.counted,
                "others": told.passed,
                "skipped": told.skipped,
                "not_recognised": told.unknown,
            }
        ).decode()
    lines = [f"{row.severity:8}  {row.clock:>9}  {row.time}  {row.run}  {line(row)}" for row in told.counted]
    for run_id in told.runs:
        lines += [
            f"skipped   {run_id}  {rule.code}: needs {', and '.join(rule.needs)}"
            for rule in told.skipped[run_id]
        ]
        lines += [
            f"unknown   {run_id}  {name}: shown, never judged" + (f"; did you mean {near}?" if near else "")
            for name, near in told.unknown[run_id].items()
        ]
    number = len(told.counted)
    said = [f"{number} finding{'' if number == 1 else 's'} at {told.config.fail_on} or worse"]
    said += [f"{told.config.most} allowed"] if told.config.most else []
    said += [f"{len(told.passed)} that do not count"] if told.passed else []
    lines.append(f"{'ok' if told.ok else 'FAILED'}: {', '.join(said)}; in {', '.join(told.runs)}")
    return "\n".join(lines)

"""A plan as lines for a person, and as rows of a table."""

from typing import Final

from overwatch.sizing.plan import Line, Plan

_STEPS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(line: Line) -> str:
    """Value and unit."""
    if line.unit == "":
        return f"{line.value:,.0f}"
    if line.unit in ("bytes/s", "/s"):
        size, letter = next(((size, letter) for size, letter in _STEPS if line.value >= size), (1.0, ""))
        unit = f"{letter}B/s" if line.unit == "bytes/s" else f"{letter}/s"
        return f"{line.value / size:.3g} {unit}"
    if line.value >= 1000:
        return f"{line.value:,.0f} {line.unit}"
    return f"{line.value:.3g} {line.unit}"


def title(plan: Plan) -> str:
    """The load in words."""
    load = plan.load
    return (
        f"{load.runs:,} runs × {load.ranks:,} ranks × {load.envs:,} envs at {load.hz:g} Hz, kept for "
        f"{plan.retention_days:g} days"
    )


def text(plan: Plan) -> str:
    """All lines, aligned."""
    rows = [(line.where, line.name, amount(line), line.why) for line in plan.lines]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{where:{widths[0]}}  {name:{widths[1]}}  {found:>{widths[2]}}  {why}"
        for where, name, found, why in rows
    ]
    return "\n".join((title(plan), *lines, f"units measured {plan.measured}"))


def table(plan: Plan) -> str:
    """The same in Markdown."""
    rows = [f"| {line.where} | {line.name} | {amount(line)} | {line.why} |" for line in plan.lines]
    return "\n".join(("| for | what | amount | from |", "|---|---|---|---|", *rows)) + "\n"

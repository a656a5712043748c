"""Two stories as the terminal shows them beside one another. Loaded only where runs are compared."""

from typing import Final

from overwatch.analyse.align import along
from overwatch.analyse.compare import CompareConfig, alike_until, compare, numbers, partings
from overwatch.analyse.story import Story
from overwatch.tui.beside import Beside, Row, Side

_NAMED: Final = 4
"""Numbers that a headline names."""


def beside(first: Story, second: Story) -> Beside:
    """Both runs, aligned by update."""
    comparison = compare([first, second], CompareConfig())
    parted = [one for one in partings(comparison) if not one.against.divergence.from_start]
    headline = "no number leaves the noise of both runs"
    if parted:
        names = ", ".join(one.metric.label for one in parted[:_NAMED])
        headline = f"B parts from A at update {parted[0].at[0]:,.0f}: {names}"
    alike = alike_until(comparison, 1)
    if alike is not None:
        headline += f"; the same to the bit up to {alike:,.0f}"
    rows = []
    for metric in comparison.metrics:
        (one,) = metric.against
        where = one.divergence.parted
        rows.append(
            Row(
                name=metric.name,
                label=metric.label,
                fmt=metric.fmt,
                verdict=one.effect.verdict,
                delta=one.effect.delta,
                parted=None if where is None else where[0],
                sides=(_side(first, metric.name), _side(second, metric.name)),
            )
        )
    return Beside(
        names=(first.run.run_id, second.run.run_id),
        headline=headline,
        rows=tuple(rows),
        verdicts=(first.verdicts, second.verdicts),
    )


def _side(story: Story, name: str) -> Side:
    x, values = along(numbers(story)[name], "update")
    return Side(updates=x.tolist(), values=values.tolist())

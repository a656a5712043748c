"""Questions about rows of services, and the panels that most boards of services are made of."""

from collections.abc import Callable

from overwatch.catalog import Metric, prometheus_name
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.spec import Look, Panel, Query, Step

PROCESS = ("rl_run_id", "role", "rank")
RUN = ("rl_run_id",)
PROCESS_LEGEND = "{{rl_run_id}} {{role}} {{rank}}"


def worst(row: Metric, by: tuple[str, ...] = RUN) -> str:
    """The largest value of a gauge in each group."""
    return promql.worst(promql.of_run(prometheus_name(row)), by)


def total(row: Metric, by: tuple[str, ...] = RUN) -> str:
    """The sum of a gauge in each group."""
    return promql.total(promql.of_run(prometheus_name(row)), by)


def rate(row: Metric, by: tuple[str, ...]) -> str:
    """How fast a counter grows in each group, a second."""
    return promql.total(promql.rate(promql.of_run(prometheus_name(row))), by)


def late(row: Metric, share: float, by: tuple[str, ...] = ()) -> str:
    """What a share of a histogram's newest values does not exceed."""
    return promql.quantile(share, promql.of_run(f"{prometheus_name(row)}_bucket"), by)


def figure(title: str, about: str, expr: str, unit: str = "short", steps: tuple[Step, ...] = ()) -> Panel:
    """A panel with one large number."""
    return Panel(
        title=title, about=about, look=Look.NUMBER, queries=(Query(expr=expr),), unit=unit, decimals=0,
        steps=steps or words.CALM, width=4, height=4,
    )  # fmt: skip


def lines(title: str, about: str, *queries: Query, unit: str = "short", stacked: bool = False) -> Panel:
    """A panel of lines over time."""
    return Panel(title=title, about=about, look=Look.LINES, queries=queries, unit=unit, stacked=stacked)


def each(
    expr: Callable[[Metric, tuple[str, ...]], str], by: tuple[str, ...], *rows: tuple[Metric, str]
) -> tuple[Query, ...]:
    """A question for each of some rows, with the words of its lines."""
    return tuple(Query(expr=expr(row, by), name=name) for row, name in rows)

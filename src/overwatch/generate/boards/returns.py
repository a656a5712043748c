"""The dashboard of what a policy is paid by beside what is really wanted: where the two part."""

from overwatch.catalog import Metric, prometheus_name
from overwatch.catalog.goodhart import (
    FOOD,
    FOOD_OFFERED,
    GAP,
    POISON,
    POISON_OFFERED,
    PROXY,
    TRUE,
)
from overwatch.diagnose.hacking import CODE
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query, Word
from overwatch.generate.boards.uids import Board

_RUN = "{{rl_run_id}}"
_OPEN = promql.worst(promql.of_run("overwatch_run_findings", code=CODE))


def _value(row: Metric) -> str:
    return promql.worst(promql.of_run(prometheus_name(row)))


def _named(row: Metric, name: str) -> Query:
    return Query(expr=_value(row), name=f"{name} {_RUN}")


RETURNS = Dashboard(
    board=Board.RETURNS,
    title="proxy and truth",
    asks="Does what is really wanted rise with what the policy is paid by?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        Panel(
            title="Proxy return",
            about="What episodes earn by the proxy that the policy is paid by; empty where none is reported.",
            look=Look.LINES,
            queries=(_named(PROXY, "proxy"),),
            to=Board.RUN,
        ),
        Panel(
            title="True return",
            about="What the same episodes earn by what is really wanted; where it does not follow the proxy, "
            "the policy games its reward.",
            look=Look.LINES,
            queries=(_named(TRUE, "true"),),
            to=Board.RUN,
        ),
        Panel(
            title="How far the proxy is ahead of the truth",
            about="Each as a place within the range that it had in its run, so that scales do not matter: "
            "near 0 they go together, near 1 the proxy is at its best and the truth at its worst.",
            look=Look.LINES,
            queries=(Query(expr=_value(GAP), name=_RUN),),
            unit="percentunit",
            top=1,
            to=Board.RUN,
        ),
        Panel(
            title="What is eaten, and what was offered",
            about="Share of food and of poison in what was eaten, beside the share of food in what was "
            "offered: a policy that is after food stays above the offer.",
            look=Look.LINES,
            queries=(
                _named(FOOD, "food"),
                _named(POISON, "poison"),
                Query(
                    expr=f"{_value(FOOD_OFFERED)} / ({_value(FOOD_OFFERED)} + {_value(POISON_OFFERED)})",
                    name=f"food offered {_RUN}",
                ),
            ),
            unit="percentunit",
            top=1,
            to=Board.RUN,
        ),
        Panel(
            title="Runs whose reward is gamed",
            about="One lane a run: whether the finding is open that its proxy rises and its truth does not "
            "follow; the runbook of its alert has the next step.",
            look=Look.STATES,
            queries=(Query(expr=f"clamp_max({_OPEN}, 1)", name=_RUN),),
            unit="none",
            words={
                0: Word(text="calm", colour=words.GREEN),
                1: Word(text="reward hacking", colour=words.YELLOW),
            },
            width=24,
            height=5,
        ),
    ),
)
"""The dashboard."""

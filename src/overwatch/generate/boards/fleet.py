"""The dashboard of all runs: those that need somebody."""

from dataclasses import replace

from overwatch.catalog import KL, prometheus_name
from overwatch.catalog.policy import RETURN
from overwatch.catalog.run import GPU_IDLE, NON_FINITE, STEPS
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES, STATE_OF_RUNS
from overwatch.generate.boards.spec import Column, Dashboard, Look, Panel, Query, Step
from overwatch.generate.boards.uids import RUN_VARIABLE, Board

_OF_A_PROBLEM = "or vector(0)"
_IDLE = promql.rate(promql.of_run(prometheus_name(GPU_IDLE)))


def _findings(severity: str) -> str:
    return promql.worst(promql.of_run("overwatch_findings", severity=severity))


def _runs(states: str) -> str:
    """How many runs are in one of these states."""
    return f"sum({promql.worst(promql.of_run('overwatch_run_status', state=states))}) {_OF_A_PROBLEM}"


def _number(title: str, about: str, expr: str, steps: tuple[Step, ...]) -> Panel:
    return Panel(
        title=title,
        about=about,
        look=Look.NUMBER,
        queries=(Query(expr=expr, name=title),),
        decimals=0,
        steps=steps,
        width=4,
        height=4,
    )


_NUMBERS = (
    _number(
        "Runs with a critical finding",
        "Runs that somebody should look at now; the table below has them on top.",
        f"count({_findings('critical')} > 0) {_OF_A_PROBLEM}",
        words.ANY_IS_BAD,
    ),
    _number(
        "Runs lost",
        "Runs that fell silent without reporting that they end; look at their processes and machines.",
        _runs("lost"),
        words.ANY_IS_BAD,
    ),
    _number(
        "Runs late",
        "Runs whose newest record is old for their own rhythm; a minute of patience often heals it.",
        _runs("=~slow|silent|stale"),
        words.ANY_IS_A_WARNING,
    ),
    _number(
        "Runs live",
        "Runs that report as they should, those included that catch up after an outage.",
        _runs("=~live|catching_up"),
        words.CALM,
    ),
    _number(
        "NaN and infinite values",
        "Values that must be numbers and were not, in the shown time; one is enough to stop a run.",
        f"sum({promql.increase(promql.of_run(prometheus_name(NON_FINITE)), over='$__range')}) "
        f"{_OF_A_PROBLEM}",
        words.ANY_IS_BAD,
    ),
    replace(
        _number(
            "Idle GPUs",
            "How many GPUs ran nothing on average of late although runs hold them; the lanes show why.",
            f"sum({_IDLE}) {_OF_A_PROBLEM}",
            words.CALM,
        ),
        decimals=1,
    ),
)

_TABLE = Panel(
    title="Runs, the worst first",
    about="One row a run with its open findings and newest numbers; a click on its name opens its own "
    "dashboard.",
    look=Look.TABLE,
    queries=(
        Query(expr=_findings("critical"), name="critical"),
        Query(expr=_findings("warning"), name="warnings"),
        Query(
            expr=promql.coded("overwatch_run_status", "state", words.RUN_CODES, promql.PER_RUN), name="state"
        ),
        Query(expr=promql.worst(promql.of_run("overwatch_run_update")), name="update"),
        Query(expr=promql.worst(promql.of_run(prometheus_name(KL))), name="KL"),
        Query(expr=promql.worst(promql.of_run(prometheus_name(RETURN))), name="return"),
        Query(
            expr=f"time() - {promql.worst(promql.of_run('overwatch_run_last_update_timestamp_seconds'))}",
            name="silent for",
        ),
        Query(
            expr=f"time() - {promql.worst(promql.of_run('overwatch_run_last_checkpoint_timestamp_seconds'))}",
            name="checkpoint before",
        ),
    ),
    columns=(
        Column(decimals=0, steps=words.ANY_IS_BAD),
        Column(decimals=0, steps=words.ANY_IS_A_WARNING),
        Column(unit="none", words=words.RUN_WORDS),
        Column(unit="none", decimals=0),
        Column(unit="none", decimals=4, steps=words.steps_of(KL)),
        Column(unit="none", decimals=2),
        Column(unit="s", decimals=0),
        Column(unit="s", decimals=0),
    ),
    keys={RUN_VARIABLE: "run"},
    sort="critical",
    width=24,
    height=9,
    to=Board.RUN,
)

_WORST = Panel(
    title="Worst open finding of each run",
    about="When trouble began and ended: CRITICAL needs somebody now, WARNING can wait for the day.",
    look=Look.STATES,
    queries=(
        Query(
            expr=promql.worst(
                f"({promql.of_run('overwatch_findings', severity='critical')} > bool 0) * 2 or "
                f"({promql.of_run('overwatch_findings', severity='warning')} > bool 0)"
            ),
            name="{{rl_run_id}}",
        ),
    ),
    unit="none",
    words=words.FINDING_WORDS,
    width=12,
    height=8,
    to=Board.RUN,
)

FLEET = Dashboard(
    board=Board.FLEET,
    title="fleet",
    asks="Which runs need somebody?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        *_NUMBERS,
        _TABLE,
        replace(STATE_OF_RUNS, width=12, height=8),
        _WORST,
        Panel(
            title="Env steps a second",
            about="The pace of each run: one line that falls is that run's matter, all lines at once are the "
            "machines' or the storage's.",
            look=Look.LINES,
            queries=(
                Query(
                    expr=promql.total(promql.rate(promql.of_run(prometheus_name(STEPS)))),
                    name="{{rl_run_id}}",
                ),
            ),
            to=Board.RUN,
        ),
        Panel(
            title="Idle GPUs, by what holds them back",
            about="How many GPUs ran nothing on average, by the bound that held then: this is what "
            "waiting costs.",
            look=Look.LINES,
            queries=(Query(expr=promql.total(_IDLE, by=("bound",)), name="{{bound}}"),),
            stacked=True,
        ),
    ),
    since="now-6h",
)
"""The dashboard."""

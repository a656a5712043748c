"""The dashboard of envs: those that are not like the others."""

from overwatch.catalog import prometheus_name
from overwatch.catalog.env import CRASHES
from overwatch.catalog.run import EPISODES
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.spec import Column, Dashboard, Look, Panel, Query, Step
from overwatch.generate.boards.uids import RUN_VARIABLE, Board

_RANKED = ("rl_run_id", "rank")
_ABOUT = {
    "crashed": "Envs that died and have sent no numbers since; look at the error of the newest one.",
    "diverging": "Envs that sent a value that is no number in the last minute; look at their reward and "
    "observations.",
    "degraded": "Envs that are far from the others by their returns, pace or culls; the table shows how far.",
    "stalled": "Envs that send no new steps; look for one that hangs and holds its lane back.",
}


def _count(status: str, steps: tuple[Step, ...]) -> Panel:
    return Panel(
        title=status.capitalize(),
        about=_ABOUT[status],
        look=Look.NUMBER,
        queries=(
            Query(
                expr=f"sum({promql.worst(promql.of_run('overwatch_run_envs', status=status))})", name=status
            ),
        ),
        decimals=0,
        steps=steps,
        width=4,
        height=4,
    )


def _total(title: str, about: str, expr: str, steps: tuple[Step, ...], decimals: int = 0) -> Panel:
    return Panel(
        title=title,
        about=about,
        look=Look.NUMBER,
        queries=(Query(expr=expr, name=title),),
        decimals=decimals,
        steps=steps,
        width=4,
        height=4,
    )


_ANOMALY = f"{promql.worst(promql.of_run('overwatch_outlier_anomaly'), by=_RANKED)} > 0"
_ENV = promql.worst(promql.of_run("overwatch_outlier_env"), by=_RANKED)
_OUTLIERS = Panel(
    title="Envs far from the others, the worst first",
    about="The ten most unusual envs of each run by their id; a click on the run opens it, `overwatch tui` "
    "has why each one is here.",
    look=Look.TABLE,
    queries=(
        Query(expr=_ANOMALY, name="anomaly"),
        Query(expr=f"{_ENV} and on ({', '.join(_RANKED)}) {_ANOMALY}", name="env"),
    ),
    columns=(Column(unit="none", decimals=2), Column(unit="none", decimals=0)),
    keys={RUN_VARIABLE: "run", "rank": "rank"},
    sort="anomaly",
    width=10,
    height=10,
    to=Board.RUN,
)

ENVS = Dashboard(
    board=Board.ENVS,
    title="env outliers",
    asks="Which envs are not like the others?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        _count("crashed", words.ANY_IS_BAD),
        _count("diverging", words.ANY_IS_BAD),
        _count("degraded", words.ANY_IS_A_WARNING),
        _count("stalled", words.ANY_IS_A_WARNING),
        _total(
            "Crashes",
            "How often envs died in the shown time, those that came back included; one lane alone points to "
            "its machine.",
            f"sum({promql.increase(promql.of_run(prometheus_name(CRASHES)), over='$__range')})",
            words.ANY_IS_A_WARNING,
        ),
        _total(
            "Episodes a second",
            "How many episodes end in a second; none for long means that nothing is learned from.",
            f"sum({promql.rate(promql.of_run(prometheus_name(EPISODES)))})",
            words.CALM,
            decimals=1,
        ),
        _OUTLIERS,
        Panel(
            title="How far the worst envs are from the others",
            about="By rank, not by env, so each line is 'the worst', 'the second': one line that leaves the "
            "others is one sick env, all lines rising together are something that they share.",
            look=Look.LINES,
            queries=(
                Query(
                    expr=promql.worst(
                        promql.of_run("overwatch_outlier_anomaly", rank="=~1|2|3|5|10"), by=_RANKED
                    ),
                    name="rank {{rank}} {{rl_run_id}}",
                ),
            ),
            unit="none",
            width=14,
            height=10,
            to=Board.RUN,
        ),
        Panel(
            title="Envs by state, those that are well left out",
            about="How many envs were not well at each moment: a step up that stays is a fault, a spike that "
            "heals is a restart.",
            look=Look.LINES,
            queries=(
                Query(
                    expr=promql.total(promql.of_run("overwatch_run_envs", status="!=ok"), by=("status",)),
                    name="{{status}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Crashes a second",
            about="When envs died: a burst on one run points to its lane or library, a steady trickle to the "
            "env's own code.",
            look=Look.LINES,
            queries=(
                Query(
                    expr=promql.total(promql.rate(promql.of_run(prometheus_name(CRASHES)))),
                    name="{{rl_run_id}}",
                ),
            ),
            to=Board.RUN,
        ),
    ),
)
"""The dashboard."""

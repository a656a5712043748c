"""The dashboard of many clusters: what each one's Prometheus recorded of its runs, side by side.

It asks for recorded series alone, so that it needs no more than `/federate` gives. Where no cluster is named,
as in a Prometheus of one cluster, it shows that one.
"""

from overwatch.generate.boards import promql, words
from overwatch.generate.boards.questions import figure, lines
from overwatch.generate.boards.spec import Column, Dashboard, Look, Panel, Query, Step, Variable
from overwatch.generate.boards.uids import CLUSTER_VARIABLE, RUN_VARIABLE, Board

_CLUSTER = (CLUSTER_VARIABLE,)
_RUN = (CLUSTER_VARIABLE, RUN_VARIABLE)
_NAME = f"{{{{{CLUSTER_VARIABLE}}}}}"
_NONE = "or vector(0)"
_SHARES = (
    Step(at=None, colour=words.RED),
    Step(at=0.8, colour=words.YELLOW),
    Step(at=0.95, colour=words.GREEN),
)
"""Of useful time; the last is what the alerts hold a run to, as shipped."""


def _of(name: str, **labels: str) -> str:
    """A selector of the chosen clusters, and of series that name none."""
    return promql.selector(name, cluster=f"=~${CLUSTER_VARIABLE}|", **labels)


def _runs(states: str) -> str:
    return _of("overwatch:fleet_runs:sum", state=states)


_USEFUL = _of("overwatch:run_useful:avg")
_SEVERITY = _of("overwatch:run_severity:max")
_STEPS = _of("overwatch:fleet_steps:rate")

_CLUSTERS = Panel(
    title="Clusters",
    about="One row a cluster, the most critical findings on top; a cluster that is missing here is one whose "
    "Prometheus does not answer.",
    look=Look.TABLE,
    queries=(
        Query(
            expr=promql.total(_of("overwatch:fleet_findings:sum", severity="critical"), _CLUSTER),
            name="critical",
        ),
        Query(
            expr=promql.total(_of("overwatch:fleet_findings:sum", severity="warning"), _CLUSTER),
            name="warnings",
        ),
        Query(expr=promql.total(_runs("=~live|slow|catching_up"), _CLUSTER), name="runs live"),
        Query(expr=promql.total(_runs("lost"), _CLUSTER), name="runs lost"),
        Query(expr=f"avg by ({CLUSTER_VARIABLE}) ({_USEFUL})", name="useful time"),
        Query(expr=promql.total(_STEPS, _CLUSTER), name="env steps/s"),
    ),
    columns=(
        Column(decimals=0, steps=words.ANY_IS_BAD),
        Column(decimals=0, steps=words.ANY_IS_A_WARNING),
        Column(decimals=0),
        Column(decimals=0, steps=words.ANY_IS_BAD),
        Column(unit="percentunit", decimals=1, steps=_SHARES),
        Column(decimals=0),
    ),
    keys={CLUSTER_VARIABLE: "cluster"},
    sort="critical",
    width=24,
    height=7,
)

_TABLE = Panel(
    title="Runs of all clusters, the worst first",
    about="One row a run and cluster; a run in two rows reported to two clusters, of which the one with "
    "updates has it now.",
    look=Look.TABLE,
    queries=(
        Query(expr=promql.worst(_SEVERITY, _RUN), name="findings"),
        Query(expr=promql.worst(_USEFUL, _RUN), name="useful time"),
        Query(expr=promql.worst(_of("overwatch:run_update:max"), _RUN), name="update"),
        Query(expr=promql.worst(_of("overwatch:run_updates:rate"), _RUN), name="updates/s"),
        Query(expr=promql.worst(_of("overwatch:run_steps:rate"), _RUN), name="env steps/s"),
        Query(expr=promql.worst(_of("overwatch:run_return:max"), _RUN), name="return"),
    ),
    columns=(
        Column(unit="none", words=words.FINDING_WORDS),
        Column(unit="percentunit", decimals=1, steps=_SHARES),
        Column(unit="none", decimals=0),
        Column(decimals=3),
        Column(decimals=0),
        Column(unit="none", decimals=2),
    ),
    keys={CLUSTER_VARIABLE: "cluster", RUN_VARIABLE: "run"},
    sort="findings",
    width=24,
    height=10,
)

FEDERATION = Dashboard(
    board=Board.FEDERATION,
    title="federation",
    asks="Which cluster needs somebody, and how much of its time is useful?",
    variables=(
        Variable(
            name=CLUSTER_VARIABLE,
            label="Cluster",
            query=f"label_values(overwatch:fleet_runs:sum, {CLUSTER_VARIABLE})",
        ),
    ),
    alerts=promql.selector(
        "ALERTS", alertname="=~Overwatch.+", alertstate="firing", cluster=f"=~${CLUSTER_VARIABLE}|"
    ),
    panels=(
        figure(
            "Clusters that report",
            "How many clusters give what their Prometheus recorded; where that is too few, one is away.",
            f"count(count by ({CLUSTER_VARIABLE}) ({_of('overwatch:fleet_runs:sum')}))",
        ),
        figure(
            "Runs live",
            "Runs of all clusters that report as they should, those included that catch up after an outage.",
            f"sum({_runs('=~live|slow|catching_up')}) {_NONE}",
        ),
        figure(
            "Runs with a critical finding",
            "Runs of all clusters that somebody should look at now; the table of runs has them on top.",
            f"count({_SEVERITY} == 2) {_NONE}",
            steps=words.ANY_IS_BAD,
        ),
        figure(
            "Runs at two clusters",
            "Runs that more than one cluster reports: a trainer was moved, or two trainers have one run id.",
            f"count(count by ({RUN_VARIABLE}) ({_SEVERITY}) > 1) {_NONE}",
            steps=words.ANY_IS_A_WARNING,
        ),
        figure(
            "Useful time",
            "Share of the last hour in which runs made useful updates, the mean over all that are not over.",
            f"avg({_USEFUL})",
            unit="percentunit",
            steps=_SHARES,
        ),
        figure(
            "Idle GPUs",
            "How many GPUs of all clusters ran nothing of late although runs hold them; the lanes show why.",
            f"sum({_of('overwatch:fleet_gpus_idle:rate')}) {_NONE}",
        ),
        _CLUSTERS,
        _TABLE,
        lines(
            "Useful time of each cluster",
            "Share of its runs that are useful now; a line that falls to nought with all its runs is that "
            "cluster's network, storage or power.",
            Query(expr=f"avg by ({CLUSTER_VARIABLE}) ({_of('overwatch:fleet_useful:avg')})", name=_NAME),
            unit="percentunit",
        ),
        lines(
            "Env steps a second of each cluster",
            "The pace of all runs of a cluster together; it falls when a run ends too, so look at its runs.",
            Query(expr=promql.total(_STEPS, _CLUSTER), name=_NAME),
        ),
    ),
    since="now-6h",
)
"""The dashboard."""

"""The dashboard of runs: whether the policy learns, and if not, which number shows it first.

Judged numbers come first, each with the limits of its row; then what they are about: return, pace.
"""

from overwatch.catalog import KL, Metric, Scope, of_scope, prometheus_name
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    RETURN,
    UPDATE_TIME,
)
from overwatch.catalog.run import NON_FINITE, STEPS, UPDATES
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES, STATE_OF_RUNS
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query, Word
from overwatch.generate.boards.uids import Board

_NAME = "{{rl_run_id}}"
_FOUND = ("rl_run_id", "code")
_LEVEL = ("rl_run_id", "level")
_BEYOND_NAME = "overwatch_policy_updates_beyond_limit_total"
JUDGED = tuple(
    row.short for row in of_scope(Scope.POLICY) if row.limits.warning is not None or row.limits.critical
)
"""Rows of the policy that the default preset judges: those that can be yellow or red."""


def _value(row: Metric) -> Query:
    return Query(expr=promql.worst(promql.of_run(prometheus_name(row))), name=_NAME)


def _number(row: Metric, title: str, about: str, decimals: int) -> Panel:
    return Panel(
        title=title,
        about=about,
        look=Look.NUMBER,
        queries=(_value(row),),
        unit=words.unit_of(row),
        decimals=decimals,
        steps=words.steps_of(row) or words.CALM,
        width=4,
        height=4,
    )


def curve(row: Metric, title: str, about: str) -> Panel:
    """A row over time, with its limits."""
    return Panel(
        title=title,
        about=about,
        look=Look.LINES,
        queries=(_value(row),),
        unit=words.unit_of(row),
        steps=words.steps_of(row),
        width=8,
        height=7,
    )


_PULSE = (
    _number(KL, "KL divergence", f"How far the newest update moved the policy: {words.limits(KL)}.", 4),
    _number(
        ENTROPY,
        "Entropy",
        f"How much the policy still explores, of what is possible: {words.limits(ENTROPY)}, unless it has "
        "solved its task.",
        0,
    ),
    _number(
        CLIP_FRACTION,
        "Clip fraction",
        f"What share of samples wanted a larger step than is allowed: {words.limits(CLIP_FRACTION)}.",
        0,
    ),
    _number(
        EXPLAINED_VARIANCE,
        "Explained variance",
        f"How well the critic foresees returns, 1 is perfect: {words.limits(EXPLAINED_VARIANCE)}, when it is "
        "worse than guessing the mean.",
        2,
    ),
    _number(
        RETURN, "Return", "What an episode earns on average; whether it rises is what training is for.", 2
    ),
    Panel(
        title="NaN and infinite values",
        about="Values that must be numbers and were not, in the shown time; one is enough to stop the run "
        "and go back to the last checkpoint.",
        look=Look.NUMBER,
        queries=(
            Query(
                expr=promql.total(
                    promql.increase(promql.of_run(prometheus_name(NON_FINITE)), over="$__range")
                ),
                name=_NAME,
            ),
        ),
        decimals=0,
        steps=words.ANY_IS_BAD,
        width=4,
        height=4,
    ),
)

_SIDES = Panel(
    title="On which side of its limits is each number?",
    about="One lane a judged number, by the limits of the run's own preset; the first lane that turned "
    "yellow or red is where to begin.",
    look=Look.STATES,
    queries=(
        Query(
            expr=promql.coded(
                "overwatch_policy_status",
                "level",
                words.LEVEL_CODES,
                ("rl_run_id", "metric"),
                metric=f"=~{'|'.join(JUDGED)}",
            ),
            name="{{metric}} {{rl_run_id}}",
        ),
    ),
    unit="none",
    words=words.LEVEL_WORDS,
    width=24,
    height=10,
)

_FINDINGS = Panel(
    title="Open findings",
    about="One lane a finding while it is open, by the name under which the runbooks have what to do; no "
    "lane is good news.",
    look=Look.STATES,
    queries=(
        Query(
            expr=f"clamp_max({promql.worst(promql.of_run('overwatch_run_findings'), by=_FOUND)} > 0, 1)",
            name="{{code}} {{rl_run_id}}",
        ),
    ),
    unit="none",
    words={1: Word(text="open", colour="orange")},
    width=24,
    height=7,
)
_BEYOND = Panel(
    title="Updates beyond the limits of KL",
    about="What share of updates moved the policy too far, by level: a few are usual, a share that stays "
    "high eats up what was learned.",
    look=Look.LINES,
    queries=(
        Query(
            expr=f"{promql.total(promql.rate(promql.of_run(_BEYOND_NAME, metric=KL.short)), by=_LEVEL)} / "
            f"on (rl_run_id) group_left {promql.total(promql.rate(promql.of_run(prometheus_name(UPDATES))))}",
            name="{{level}} {{rl_run_id}}",
        ),
    ),
    unit="percentunit",
    top=1,
    width=8,
    height=7,
)

_CURVES = (
    curve(
        KL,
        "KL divergence",
        f"The dashed lines are the limits ({words.limits(KL)}): a policy that stays above them forgets what "
        f"it learned; {KL.fix}.",
    ),
    _BEYOND,
    curve(
        ENTROPY,
        "Entropy",
        f"The dashed lines are the limits ({words.limits(ENTROPY)}): falling fast while the return does not "
        f"rise means it stopped exploring; {ENTROPY.fix}.",
    ),
    curve(
        CLIP_FRACTION,
        "Clip fraction",
        f"The dashed lines are the limits ({words.limits(CLIP_FRACTION)}): much clipping together with a "
        f"high KL means steps are too large; {CLIP_FRACTION.fix}.",
    ),
    curve(
        EXPLAINED_VARIANCE,
        "Explained variance",
        f"{words.limits(EXPLAINED_VARIANCE).capitalize()}, where the critic misleads the policy; "
        f"{EXPLAINED_VARIANCE.fix}.",
    ),
    curve(
        GRAD_NORM,
        "Gradient norm, before clipping",
        f"Judged against the run's own past ({words.limits(GRAD_NORM)}), since its level means nothing; "
        f"{GRAD_NORM.fix}.",
    ),
    curve(
        RETURN,
        "Return",
        "What episodes earn: a fall while the numbers above are calm points to the environment, not to the "
        "policy.",
    ),
    curve(
        UPDATE_TIME,
        "Time of one update",
        f"Collecting and learning together, judged against the run's own past ({words.limits(UPDATE_TIME)}); "
        f"{UPDATE_TIME.fix}.",
    ),
    Panel(
        title="Env steps a second",
        about="The pace of training: a fall without a change of the run means a machine, an env or a disk "
        "got slow; the lanes show which.",
        look=Look.LINES,
        queries=(Query(expr=promql.total(promql.rate(promql.of_run(prometheus_name(STEPS)))), name=_NAME),),
        width=8,
        height=7,
    ),
)

RUN = Dashboard(
    board=Board.RUN,
    title="run",
    asks="Is this policy learning, and if not, which number shows it first?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(*_PULSE, STATE_OF_RUNS, _FINDINGS, _SIDES, *_CURVES),
)
"""The dashboard."""

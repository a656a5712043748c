"""Rows about the critic and what it learns from: values, errors, returns, advantages. One value an update."""

from functools import partial
from typing import Final

from overwatch.catalog.metric import (
    Direction,
    Kind,
    Limit,
    Limits,
    Metric,
    NonFinite,
    Scope,
    Side,
    above,
    below,
    between,
)

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)
_RETURN: Final = "overwatch.policy.return"


def _around(warning: float, critical: float) -> Limits:
    """Bad this far from zero, on either side."""
    return between(below(-warning, -critical, at=True), above(warning, critical, at=True))


VALUE_MIN: Final = _row(
    name="overwatch.policy.value_min",
    unit="{reward}",
    asks="What was the least that the critic expected?",
    label="val min",
    fmt="+.2f",
    tele=("TELE-212",),
)

VALUE_MAX: Final = _row(
    name="overwatch.policy.value_max",
    unit="{reward}",
    asks="What was the most that the critic expected?",
    label="val max",
    presets={"esper": above(5000.0, 10000.0, at=True)},
    fmt="+.2f",
    fix="check reward scale and bootstrapping",
    tele=("TELE-213",),
)

VALUE_SPREAD: Final = _row(
    name="overwatch.policy.value_spread",
    unit="{spread}",
    asks="How wide is the range of values, as a multiple of what it was after fifty updates?",
    label="val sprd",
    presets={"esper": above(5.0, 10.0)},
    direction=Direction.DOWN,
    non_finite=NonFinite.UNDEFINED,
    fmt=".1f",
    tele=("TELE-214",),
    depends_on=("overwatch.policy.value_min", "overwatch.policy.value_max"),
)

ROWS: Final = (
    _row(
        name="overwatch.policy.advantage_mean",
        unit="{sigma}",
        asks="Is the mean advantage about 0, before it is normalised?",
        label="adv mean",
        presets={"esper": _around(0.1, 0.3)},
        fmt="+.3f",
        tele=("TELE-141",),
    ),
    _row(
        name="overwatch.policy.advantage_std",
        unit="{sigma}",
        asks="How much do advantages differ, before they are normalised?",
        label="adv std",
        limits=above(4.0, 10.0, relative=True),
        presets={
            "esper": between(
                Limits(
                    warning=Limit(side=Side.BELOW, value=0.5),
                    critical=Limit(side=Side.AT_OR_BELOW, value=0.1),
                ),
                above(2.0, 3.0),
            ),
            "grpo": below(0.35),
        },
        fix="all actions look equally good: look at rewards, at the critic, at groups that all earn the same",
        tele=("TELE-140",),
    ),
    _row(
        name="overwatch.policy.advantage_skewness",
        unit="{moment}",
        asks="Do a few samples have far better or worse advantages than the rest?",
        label="adv skew",
        presets={"esper": between(below(-0.5, -1.0), above(1.0, 2.0))},
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-142",),
    ),
    _row(
        name="overwatch.policy.advantage_kurtosis",
        unit="{moment}",
        asks="Are there more extreme advantages than a normal distribution has?",
        label="adv kurt",
        presets={"esper": between(below(-1.0, -2.0), above(3.0, 6.0))},
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-143",),
    ),
    _row(
        name="overwatch.policy.advantage_positive",
        unit="1",
        asks="What share of the advantages was above 0?",
        label="adv pos",
        presets={
            "esper": between(
                Limits(
                    warning=Limit(side=Side.BELOW, value=0.4),
                    critical=Limit(side=Side.AT_OR_BELOW, value=0.2),
                ),
                Limits(
                    warning=Limit(side=Side.ABOVE, value=0.6),
                    critical=Limit(side=Side.AT_OR_ABOVE, value=0.8),
                ),
            )
        },
        fmt=".0%",
        tele=("TELE-144",),
    ),
    _row(
        name="overwatch.policy.value_mean",
        unit="{reward}",
        asks="What did the critic expect on average?",
        label="val mean",
        fmt="+.3f",
        tele=("TELE-210",),
    ),
    _row(
        name="overwatch.policy.value_std",
        unit="{reward}",
        asks="Does the critic distinguish states at all?",
        label="val std",
        presets={"esper": below(0.01)},
        direction=Direction.UP,
        fmt=".3f",
        fix="check the critic's inputs and its learning rate",
        tele=("TELE-211",),
    ),
    VALUE_MIN,
    VALUE_MAX,
    VALUE_SPREAD,
    _row(
        name="overwatch.policy.value_nrmse",
        unit="{error}",
        asks="How large is the critic's error, as a share of the spread of returns?",
        label="val err",
        direction=Direction.DOWN,
        non_finite=NonFinite.UNDEFINED,
        feeds=("finding:policy-explained-variance",),
    ),
    _row(
        name="overwatch.policy.value_clipped",
        unit="1",
        asks="In what share of the samples was the critic's step clipped?",
        label="val clip",
        direction=Direction.DOWN,
        fmt=".0%",
    ),
    _row(
        name="overwatch.policy.value_loss_unclipped",
        unit="{loss}",
        asks="What was the critic's loss before it was clipped?",
        label="val raw",
        direction=Direction.DOWN,
    ),
    _row(
        name="overwatch.policy.value_correlation",
        unit="{correlation}",
        asks="Does what the critic expected go with what was earned?",
        label="val corr",
        presets={"esper": below(0.5, 0.3)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-220",),
    ),
    _row(
        name="overwatch.policy.td_error_mean",
        unit="{reward}",
        asks="Does the critic expect too little or too much, on average?",
        label="td mean",
        presets={"esper": _around(5.0, 15.0)},
        fmt="+.3f",
        tele=("TELE-221",),
    ),
    _row(
        name="overwatch.policy.td_error_std",
        unit="{reward}",
        asks="How much do the critic's errors differ?",
        label="td std",
        fmt=".3f",
        tele=("TELE-222",),
    ),
    _row(
        name="overwatch.policy.bellman_error",
        unit="{reward}",
        asks="How large is the critic's error from one step to the next, without its sign?",
        label="bellman",
        presets={"esper": above(20.0, 50.0, at=True)},
        direction=Direction.DOWN,
        fmt=".3f",
        tele=("TELE-223",),
    ),
    _row(
        name="overwatch.policy.return_p10",
        unit="{reward}",
        asks="What did the worse tenth of the episodes earn at most?",
        label="ret p10",
        presets={"esper": below(0.0)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-224",),
    ),
    _row(
        name="overwatch.policy.return_p50",
        unit="{reward}",
        asks="What did the middle episode earn?",
        label="ret p50",
        presets={"esper": below(0.0)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-225",),
    ),
    _row(
        name="overwatch.policy.return_p90",
        unit="{reward}",
        asks="What did the better tenth of the episodes earn at least?",
        label="ret p90",
        presets={"esper": below(0.0)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-226",),
    ),
    _row(
        name="overwatch.policy.return_variance",
        unit="{reward2}",
        asks="How much do the returns of an update's episodes vary?",
        label="ret var",
        presets={"esper": above(100.0)},
        non_finite=NonFinite.UNDEFINED,
        fmt=".2f",
        tele=("TELE-227",),
        feeds=("finding:policy-explained-variance",),
    ),
    _row(
        name="overwatch.policy.return_skewness",
        unit="{moment}",
        asks="Do a few episodes earn far more or less than the rest?",
        label="ret skew",
        presets={"esper": _around(1.0, 2.0)},
        non_finite=NonFinite.UNDEFINED,
        fmt="+.2f",
        tele=("TELE-228",),
    ),
    _row(
        name="overwatch.policy.popart_mean",
        unit="{reward}",
        asks="Around which return does the critic predict, as the running mean of returns?",
        label="pop mean",
        fmt="+.3f",
    ),
    _row(
        name="overwatch.policy.popart_std",
        unit="{reward}",
        asks="In units of which deviation of returns does the critic predict?",
        label="pop std",
        fmt=".3f",
    ),
    _row(
        name="overwatch.policy.popart_rollouts",
        short="popart_count",
        unit="{rollout}",
        asks="From how many rollouts are the mean and the deviation of returns made?",
        label="pop n",
        fmt=".0f",
    ),
)

"""Rows about gradients and optimiser, one value an update; the gradient norm stands in `policy`."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import plain
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
    between,
)

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)
_STOP: Final = "stop; go back to the last good checkpoint with a lower learning rate"
_SOME: Final = Limits(
    warning=Limit(side=Side.ABOVE, value=0.0), critical=Limit(side=Side.AT_OR_ABOVE, value=3.0)
)

ENTROPY_NATS: Final = _row(
    name="overwatch.policy.entropy_nats",
    unit="{nat}",
    asks="How much does the policy still explore, in nats, where its maximum is not known?",
    label="ent nat",
    # Of a density it may be negative; what is low depends on the number of choices.
    fmt="+.3f",
    aliases=plain("policy_entropy", "mean_entropy"),
    feeds=("finding:entropy-explosion",),
)

ACTION_STD: Final = _row(
    name="overwatch.policy.action_std",
    unit="{action}",
    asks="How wide does a policy of continuous actions still try, as its mean standard deviation?",
    label="act std",
    fmt=".3f",
    feeds=("finding:entropy-explosion",),
)

TOTAL_LOSS: Final = _row(
    name="overwatch.policy.total_loss",
    unit="{loss}",
    asks="What was the loss as a whole, as the optimiser saw it?",
    label="loss",
    fmt="+.4f",
    aliases=plain("loss"),
    feeds=("finding:loss-diverged",),
)

ENTROPY_CLIP: Final = _row(
    name="overwatch.policy.entropy_clip_correlation",
    unit="{correlation}",
    asks="Does clipping rise while entropy falls?",
    label="ent/clip",
    # Alone it shows nothing: it matters where entropy is low and clipping is high.
    non_finite=NonFinite.UNDEFINED,
    fmt="+.2f",
    tele=("TELE-123",),
    depends_on=("overwatch.policy.entropy", "overwatch.policy.clip_fraction"),
)

ROWS: Final = (
    _row(
        name="overwatch.policy.grad_nan",
        unit="{value}",
        asks="How many gradients of this update were NaN?",
        limits=above(0.0, 5.0),
        direction=Direction.DOWN,
        fmt=".0f",
        fix=_STOP,
        tele=("TELE-300",),
    ),
    _row(
        name="overwatch.policy.grad_inf",
        unit="{value}",
        asks="How many gradients of this update were infinite?",
        limits=above(0.0, 5.0),
        direction=Direction.DOWN,
        fmt=".0f",
        fix=_STOP,
        tele=("TELE-301",),
    ),
    _row(
        name="overwatch.policy.grad_variation",
        unit="{variation}",
        asks="How much do the gradient norms of an update's minibatches differ, as a share of their mean?",
        label="grad var",
        presets={"esper": above(0.5, 2.0, at=True)},
        direction=Direction.DOWN,
        non_finite=NonFinite.UNDEFINED,
        fmt=".2f",
        tele=("TELE-330",),
    ),
    _row(
        name="overwatch.policy.layers_dead",
        unit="{layer}",
        asks="How many layers get next to no gradient?",
        label="dead",
        presets={"esper": _SOME},
        direction=Direction.DOWN,
        fmt=".0f",
        tele=("TELE-331",),
    ),
    _row(
        name="overwatch.policy.layers_exploding",
        unit="{layer}",
        asks="How many layers get far too much gradient?",
        label="explode",
        presets={"esper": _SOME},
        direction=Direction.DOWN,
        fmt=".0f",
        tele=("TELE-332",),
    ),
    _row(
        name="overwatch.policy.hidden_rms",
        unit="{activation}",
        asks="How large is the recurrent state, as the root of its mean square?",
        label="hidden",
        presets={
            "esper": between(Limits(critical=Limit(side=Side.AT_OR_BELOW, value=1e-6)), above(5.0, 10.0))
        },
        fmt=".2f",
        tele=("TELE-340",),
    ),
    TOTAL_LOSS,
    ENTROPY_NATS,
    ACTION_STD,
    _row(
        name="overwatch.policy.clip_range",
        unit="{clip}",
        asks="How far might the ratio leave 1 before its gradient stopped?",
        label="clip rng",
    ),
    ENTROPY_CLIP,
    _row(
        name="overwatch.policy.minibatches_skipped",
        unit="{minibatch}",
        asks="How many minibatches of this update took no step: stopped early, or gradients not finite?",
        label="skipped",
        direction=Direction.DOWN,
        fmt=".0f",
    ),
)

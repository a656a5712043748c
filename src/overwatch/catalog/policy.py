"""Rows about the policy: one value per PPO update.

Limits named `ppo` are the defaults; the absolute limits of the original system are preset `esper`.
KL limits (TELE-110) hold in every preset.
"""

from typing import Final

from overwatch.catalog.metric import Direction, Fold, Kind, Limit, Limits, Metric, NonFinite, Scope, Side


def _above(warning: float, critical: float | None, *, relative: bool = False) -> Limits:
    return Limits(
        warning=Limit(side=Side.ABOVE, value=warning, relative=relative),
        critical=None if critical is None else Limit(side=Side.ABOVE, value=critical, relative=relative),
    )


KL: Final = Metric(
    name="overwatch.policy.kl_divergence",
    short="kl_divergence",
    kind=Kind.GAUGE,
    unit="{nat}",
    scope=Scope.POLICY,
    asks="Is the policy changing too rapidly, violating the PPO trust region constraint?",
    label="KL",
    limits=_above(0.015, 0.03),
    direction=Direction.DOWN,
    fmt=".4f",
    banner_fmt=".3f",
    fix="lower the learning rate or the number of epochs",
    tele="TELE-110",
    aliases=("train/approx_kl", "losses/approx_kl", "approx_kl", "rl.train.kl_divergence"),
)

ENTROPY: Final = Metric(
    name="overwatch.policy.entropy",
    short="entropy",
    kind=Kind.GAUGE,
    unit="1",
    scope=Scope.POLICY,
    asks="Does the policy still explore, as a share of the entropy of the legal actions?",
    label="entropy",
    # A policy that is solved is low too: what is low and has converged is told as info (diagnosis).
    limits=Limits(warning=Limit(side=Side.BELOW, value=0.3), critical=Limit(side=Side.BELOW, value=0.1)),
    presets={
        "esper": Limits(
            warning=Limit(side=Side.AT_OR_BELOW, value=0.3),
            critical=Limit(side=Side.AT_OR_BELOW, value=0.1),
        )
    },
    fmt=".0%",
    suffix="max",
    fix="raise the entropy coefficient or lower the learning rate",
    tele="TELE-120",
)

CLIP_FRACTION: Final = Metric(
    name="overwatch.policy.clip_fraction",
    short="clip_fraction",
    kind=Kind.GAUGE,
    unit="1",
    scope=Scope.POLICY,
    asks="What share of the samples had their ratio clipped?",
    label="clip",
    limits=Limits(
        warning=Limit(side=Side.AT_OR_ABOVE, value=0.25), critical=Limit(side=Side.AT_OR_ABOVE, value=0.5)
    ),
    presets={
        "esper": Limits(
            warning=Limit(side=Side.AT_OR_ABOVE, value=0.25),
            critical=Limit(side=Side.AT_OR_ABOVE, value=0.30),
        )
    },
    direction=Direction.DOWN,
    fix="lower the learning rate or the number of epochs",
    tele="TELE-130",
    aliases=("train/clip_fraction", "losses/clipfrac"),
)

EXPLAINED_VARIANCE: Final = Metric(
    name="overwatch.policy.explained_variance",
    short="explained_variance",
    kind=Kind.GAUGE,
    unit="{variance}",
    scope=Scope.POLICY,
    asks="How much of the returns' variance did the critic predict before the update?",
    label="expl var",
    limits=Limits(warning=Limit(side=Side.BELOW, value=0.0)),
    presets={
        "esper": Limits(warning=Limit(side=Side.BELOW, value=0.3), critical=Limit(side=Side.BELOW, value=0.0))
    },
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.2f",
    hold=(5, 5),
    warm_above=0.1,
    fix="check the value loss and the scale of rewards; more epochs for the critic may help",
    tele="TELE-200",
    aliases=("train/explained_variance", "losses/explained_variance"),
)

GRAD_NORM: Final = Metric(
    name="overwatch.policy.grad_norm",
    short="grad_norm",
    kind=Kind.GAUGE,
    unit="{norm}",
    scope=Scope.POLICY,
    asks="How large is the gradient before clipping, against this run's own median?",
    label="grad",
    limits=_above(4.0, 10.0, relative=True),
    presets={"esper": _above(5.0, 10.0)},
    direction=Direction.DOWN,
    fmt=".2f",
    fix="lower the learning rate; look for outliers in rewards and observations",
    tele="TELE-310",
)

GRAD_CLIPPED: Final = Metric(
    name="overwatch.policy.grad_clipped",
    short="grad_clipped",
    kind=Kind.GAUGE,
    unit="1",
    scope=Scope.POLICY,
    # A trainer may tell it; else the fold works it out. No limit: many healthy runs clip at every update.
    asks=(
        "In what share of the newest twenty updates was `grad_norm` beyond the `max_grad_norm` of the run's "
        "configuration, and so clipped?"
    ),
    label="clipped",
    fmt=".0%",
)

LEARNING_RATE: Final = Metric(
    name="overwatch.policy.learning_rate",
    short="learning_rate",
    kind=Kind.GAUGE,
    unit="{learning_rate}",
    scope=Scope.POLICY,
    asks="Which learning rate did the optimiser use?",
    label="lr",
    fmt=".1e",
    aliases=("train/learning_rate", "charts/learning_rate"),
)

POLICY_LOSS: Final = Metric(
    name="overwatch.policy.loss",
    short="policy_loss",
    kind=Kind.GAUGE,
    unit="{loss}",
    scope=Scope.POLICY,
    asks="What was the clipped surrogate loss?",
    label="pol loss",
    fmt="+.4f",
    tele="TELE-131",
    aliases=("train/policy_gradient_loss", "losses/policy_loss"),
)

VALUE_LOSS: Final = Metric(
    name="overwatch.policy.value_loss",
    short="value_loss",
    kind=Kind.GAUGE,
    unit="{loss}",
    scope=Scope.POLICY,
    asks="What was the critic's loss, against this run's own median?",
    label="val loss",
    limits=_above(4.0, None, relative=True),
    presets={"esper": _above(5.0, 20.0)},
    direction=Direction.DOWN,
    fix="check reward scale and advantage normalisation",
    tele="TELE-132",
    aliases=("train/value_loss", "losses/value_loss"),
)

RETURN: Final = Metric(
    name="overwatch.policy.return",
    short="return",
    kind=Kind.GAUGE,
    unit="{reward}",
    scope=Scope.POLICY,
    asks="What did the episodes that ended in this update earn on average?",
    label="return",
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    aliases=("rollout/ep_rew_mean", "charts/episodic_return", "rl.environment.reward.mean"),
)

UPDATE_TIME: Final = Metric(
    name="overwatch.policy.update_time",
    short="update_time",
    kind=Kind.GAUGE,
    unit="s",
    scope=Scope.POLICY,
    asks="How long did collecting and learning take, against this run's own median?",
    label="update",
    limits=_above(2.0, None, relative=True),
    direction=Direction.DOWN,
    fold=Fold.SUM,
    fmt=".2f",
    suffix="s",
    fix="look at the phases and the system panel for what grew",
)

KL_JOINT: Final = Metric(
    name="overwatch.policy.kl_joint",
    short="kl_joint",
    kind=Kind.GAUGE,
    unit="{nat}",
    scope=Scope.POLICY,
    asks="How far did the joint policy move over all heads together?",
    label="kl joint",
    direction=Direction.DOWN,
    fmt=".4f",
)

KL_MAX: Final = Metric(
    name="overwatch.policy.kl_max",
    short="kl_max",
    kind=Kind.GAUGE,
    unit="{nat}",
    scope=Scope.POLICY,
    asks="How far did the policy move in the worst minibatch?",
    label="kl max",
    direction=Direction.DOWN,
    fmt=".4f",
)

FIRST_RATIO_ERROR: Final = Metric(
    name="overwatch.policy.initial_mismatch",
    short="first_ratio_error",
    kind=Kind.GAUGE,
    unit="{error}",
    scope=Scope.POLICY,
    asks="Does the policy that learns agree with the policy that collected, before the first step?",
    label="ratio 0",
    limits=_above(1e-3, None),
    direction=Direction.DOWN,
    fmt=".1e",
    fix="look for dropout, stale normalisers or a sampler that differs from the trainer",
)

ROWS: Final = (
    KL, ENTROPY, CLIP_FRACTION, EXPLAINED_VARIANCE, GRAD_NORM, GRAD_CLIPPED, LEARNING_RATE, POLICY_LOSS,
    VALUE_LOSS, RETURN, UPDATE_TIME, KL_JOINT, KL_MAX, FIRST_RATIO_ERROR,
)  # fmt: skip

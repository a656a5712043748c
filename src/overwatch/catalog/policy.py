"""Rows about the policy: one value per PPO update.

Limits named `ppo` are the defaults; the absolute limits of the original system are preset `esper`.
KL limits (TELE-110) hold in every preset.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import (
    Estimator,
    Moment,
    draft,
    plain,
)
from overwatch.catalog.metric import (
    NO_LIMITS,
    Direction,
    Kind,
    Metric,
    NonFinite,
    Scope,
    above,
    below,
    between,
)

_policy = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)

KL: Final = _policy(
    name="overwatch.policy.kl_divergence",
    parts="head",
    unit="{nat}",
    asks="Is the policy changing too rapidly, violating the PPO trust region constraint?",
    label="KL",
    limits=above(0.015, 0.03),
    direction=Direction.DOWN,
    fmt=".4f",
    banner_fmt=".3f",
    fix="lower the learning rate or the number of epochs",
    tele=("TELE-110",),
    aliases=(
        draft("rl.train.kl_divergence"),
        *plain("kl", "approxkl", "mean_kl", "kl_mean", "policy_kl"),
    ),
    estimator=Estimator.K3,
    moment=Moment.LAST_EPOCH,
    feeds=("event:early_stopped", "field:verdict"),
)

ENTROPY: Final = _policy(
    name="overwatch.policy.entropy",
    parts="head",
    unit="1",
    asks="Does the policy still explore, as a share of the entropy of the legal actions?",
    # A policy that is solved is low too: what is low and has converged is reported as info (diagnosis).
    limits=below(0.3, 0.1),
    # A differential entropy has no maximum and no floor; an answer in words may be sure of itself.
    presets={"esper": below(0.3, 0.1, at=True), "ppo-continuous": NO_LIMITS, "grpo": NO_LIMITS},
    fmt=".0%",
    suffix="max",
    fix="raise the entropy coefficient or lower the learning rate",
    tele=("TELE-120",),
    # A library's own name is that of nats: see `entropy_nats`.
    aliases=plain("entropy_relative", "relative_entropy", "normalized_entropy", "entropy_share"),
    feeds=("finding:converged", "finding:policy-collapse", "field:verdict"),
)

CLIP_FRACTION: Final = _policy(
    name="overwatch.policy.clip_fraction",
    parts="head",
    unit="1",
    asks="What share of the samples had their ratio clipped?",
    label="clip",
    limits=above(0.25, 0.5, at=True),
    presets={"esper": above(0.25, 0.30, at=True)},
    direction=Direction.DOWN,
    fix="lower the learning rate or the number of epochs",
    tele=("TELE-130",),
    aliases=plain("clipfrac", "clip_frac"),
    feeds=("finding:policy-collapse",),
)

EXPLAINED_VARIANCE: Final = _policy(
    name="overwatch.policy.explained_variance",
    unit="{variance}",
    asks="How much of the returns' variance did the critic predict before the update?",
    label="expl var",
    limits=below(0.0),
    presets={"esper": below(0.3, 0.0), "grpo": NO_LIMITS},
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.2f",
    hold=(5, 5),
    warm_above=0.1,
    fix="check the value loss and the scale of rewards; more epochs for the critic may help",
    tele=("TELE-200",),
    aliases=plain("explained_var"),
    feeds=("finding:policy-collapse",),
)

GRAD_NORM: Final = _policy(
    name="overwatch.policy.grad_norm",
    parts="head",
    unit="{norm}",
    asks="How large is the gradient before clipping, against this run's own median?",
    label="grad",
    limits=above(4.0, 10.0, relative=True, least=0.125),
    presets={"esper": above(5.0, 10.0)},
    direction=Direction.DOWN,
    fmt=".2f",
    fix="lower the learning rate; look for outliers in rewards and observations",
    tele=("TELE-310",),
    aliases=plain("gradient_norm", "global_grad_norm"),
    feeds=("finding:policy-collapse",),
)

GRAD_CLIPPED: Final = _policy(
    name="overwatch.policy.grad_clipped",
    unit="1",
    # A trainer may send it; else the fold works it out. No limit: many healthy runs clip at every update.
    asks=(
        "In what share of the newest twenty updates was `grad_norm` beyond the `max_grad_norm` of the run's "
        "configuration, and so clipped?"
    ),
    label="clipped",
    fmt=".0%",
    depends_on=("overwatch.policy.grad_norm",),
    feeds=("finding:policy-grad-norm",),
)

LEARNING_RATE: Final = _policy(
    name="overwatch.policy.learning_rate",
    unit="{learning_rate}",
    asks="Which learning rate did the optimiser use?",
    label="lr",
    fmt=".1e",
)

POLICY_LOSS: Final = _policy(
    name="overwatch.policy.loss",
    short="policy_loss",
    unit="{loss}",
    asks="What was the clipped surrogate loss?",
    label="pol loss",
    fmt="+.4f",
    tele=("TELE-131",),
    aliases=(
        *plain("pg_loss", "actor_loss"),
        draft("rl.train.loss", rl_loss_type="policy"),
    ),
)

VALUE_LOSS: Final = _policy(
    name="overwatch.policy.value_loss",
    unit="{loss}",
    asks="What was the critic's loss, against this run's own median?",
    label="val loss",
    limits=above(4.0, None, relative=True),
    presets={"esper": between(below(0.001), above(5.0, 20.0))},
    direction=Direction.DOWN,
    fix="check reward scale and advantage normalisation",
    tele=("TELE-132",),
    aliases=(
        *plain("critic_loss", "v_loss", "vf_loss"),
        draft("rl.train.loss", rl_loss_type="value"),
    ),
    feeds=("finding:policy-collapse",),
)

_RETURNS: Final = """
return_ episode_return episodic_return mean_return return_mean avg_return average_return mean_episode_return
episode_return_mean ep_return ep_ret ep_rew_mean ep_rew episode_reward episodic_reward mean_episode_reward
mean_reward reward_mean avg_reward average_reward reward
"""

RETURN: Final = _policy(
    name="overwatch.policy.return",
    unit="{reward}",
    asks="What did the episodes that ended in this update earn on average?",
    tele=("TELE-021",),
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    aliases=(
        draft("rl.environment.reward.mean"),
        *plain(*_RETURNS.split()),
    ),
    depends_on=("event:episode_ended",),
    feeds=("finding:reward-collapse", "finding:converged"),
)

UPDATE_TIME: Final = _policy(
    name="overwatch.policy.update_time",
    unit="s",
    asks="How long did collecting and learning take, against this run's own median?",
    label="update",
    tele=("TELE-711",),
    aliases=(draft("rl.loop.duration"),),
    limits=above(2.0, None, relative=True, least=0.25),
    direction=Direction.DOWN,
    fmt=".2f",
    suffix="s",
    fix="look at the phases and the system panel for what grew",
)

ROWS: Final = (
    KL, ENTROPY, CLIP_FRACTION, EXPLAINED_VARIANCE, GRAD_NORM, GRAD_CLIPPED, LEARNING_RATE, POLICY_LOSS,
    VALUE_LOSS, RETURN, UPDATE_TIME,
)  # fmt: skip

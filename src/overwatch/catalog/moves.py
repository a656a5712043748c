"""Rows about how far an update moved the policy: divergences, importance weights, log probabilities.

KL, clip fraction and entropy, which every trainer sends, stand in `policy`. One value a policy update.
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

KL_JOINT: Final = _row(
    name="overwatch.policy.kl_joint",
    unit="{nat}",
    asks="How far did the joint policy move over all heads together?",
    direction=Direction.DOWN,
    fmt=".4f",
    estimator=Estimator.K3,
    moment=Moment.LAST_EPOCH,
    feeds=("event:early_stopped",),
)

KL_MAX: Final = _row(
    name="overwatch.policy.kl_max",
    unit="{nat}",
    asks="How far did the policy move in the worst minibatch?",
    direction=Direction.DOWN,
    fmt=".4f",
    estimator=Estimator.K3,
)

KL_DRIFT: Final = _row(
    name="overwatch.policy.kl_drift",
    short="policy_drift_rate",
    unit="{nat}",
    # Beside the limits of KL itself a slope has none: it shows whether KL will get there.
    asks="By how much does KL grow from one update to the next, as the slope of its newest ten?",
    label="kl drift",
    direction=Direction.DOWN,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.5f",
    tele=("TELE-112",),
    depends_on=("overwatch.policy.kl_divergence",),
)

TRUST_REGION: Final = _row(
    name="overwatch.policy.trust_region",
    short="trust_region_health",
    unit="{target}",
    # The limits of KL and the early stop judge the same distance already.
    asks=(
        "How far did the joint policy move, as a multiple of the run's `target_kl`, or of KL's warning limit "
        "where it declared none?"
    ),
    label="trust",
    direction=Direction.DOWN,
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    suffix="×",
    tele=("TELE-113",),
    depends_on=("overwatch.policy.kl_joint", "overwatch.policy.kl_divergence"),
    feeds=("event:early_stopped",),
)

KL_K1: Final = _row(
    name="overwatch.policy.kl_k1",
    unit="{nat}",
    asks="How far did the policy move, by an estimate that is negative now and then?",
    label="KL k1",
    limits=above(0.015, 0.03),
    direction=Direction.DOWN,
    fmt="+.4f",
    # Four times the scatter of k3: only the mean of ten means anything.
    mean_of=10,
    fix="lower the learning rate or the number of epochs",
    # Not of a trainer that sends a better estimate beside it: one move is not judged twice.
    aliases=plain("old_approx_kl"),
    estimator=Estimator.K1,
)

KL_REFERENCE: Final = _row(
    name="overwatch.policy.kl_reference",
    unit="{nat}",
    asks="How far is the policy from the reference model that it must not leave?",
    label="kl ref",
    presets={"grpo": above(0.3)},
    direction=Direction.DOWN,
    fmt=".4f",
    fix="raise the weight of the divergence from the reference model",
    aliases=(draft("rl.train.loss", rl_loss_type="kl_divergence"),),
)

CLAMPED: Final = _row(
    name="overwatch.policy.log_weights_clamped",
    short="log_ratio_clamped",
    unit="1",
    asks="In what share of the samples was the log ratio so large that it had to be cut?",
    label="clamped",
    limits=above(0.0, 0.01),
    direction=Direction.DOWN,
    fmt=".1%",
    fix="look for actions that the collecting policy thought impossible: masks, stale weights",
)

FIRST_RATIO_ERROR: Final = _row(
    name="overwatch.policy.initial_mismatch",
    short="first_ratio_error",
    unit="{error}",
    asks="Does the policy that learns agree with the policy that collected, before the first step?",
    label="ratio 0",
    limits=above(1e-3),
    # Language models sample and learn in half precision, with different kernels.
    presets={"grpo": above(1e-2)},
    direction=Direction.DOWN,
    fmt=".1e",
    fix="look for dropout, stale normalisers or a sampler that differs from the trainer",
)

CLIP_UP: Final = _row(
    name="overwatch.policy.clip_fraction_up",
    unit="1",
    asks="What share of the samples was clipped because it became too likely?",
    label="clip up",
    presets={"esper": above(0.3, 0.5, at=True)},
    direction=Direction.DOWN,
    tele=("TELE-135",),
    feeds=("field:policy",),
)

CLIP_DOWN: Final = _row(
    name="overwatch.policy.clip_fraction_down",
    unit="1",
    asks="What share of the samples was clipped because it became too unlikely?",
    label="clip dn",
    presets={"esper": above(0.15, 0.30, at=True)},
    direction=Direction.DOWN,
    tele=("TELE-136",),
)

WEIGHT_MAX: Final = _row(
    name="overwatch.policy.importance_max",
    short="ratio_max",
    parts="head",
    unit="{weight}",
    asks="What was the largest ratio of new to old probability of all heads together?",
    label="rat max",
    limits=above(5.0),
    presets={
        "esper": between(
            Limits(
                warning=Limit(side=Side.BELOW, value=0.5),
                critical=Limit(side=Side.AT_OR_BELOW, value=0.33),
            ),
            above(2.0, 3.0),
        ),
        # A ratio of densities has no natural size.
        "ppo-continuous": NO_LIMITS,
    },
    direction=Direction.DOWN,
    fmt=".2f",
    fix="lower the learning rate or the number of epochs",
    tele=("TELE-150",),
)

WEIGHT_MIN: Final = _row(
    name="overwatch.policy.importance_min",
    short="ratio_min",
    unit="{weight}",
    asks="What was the smallest ratio of new to old probability of all heads together?",
    label="rat min",
    limits=below(0.1),
    presets={"ppo-continuous": NO_LIMITS},
    direction=Direction.UP,
    fmt=".2f",
    fix="lower the learning rate or the number of epochs",
)

WEIGHT_MEAN: Final = _row(
    name="overwatch.policy.importance_mean",
    short="ratio_mean",
    unit="{weight}",
    asks="Is the mean ratio of new to old probability about 1?",
    label="rat mean",
    fmt=".3f",
)

LOG_PROB_MIN: Final = _row(
    name="overwatch.policy.log_prob_min",
    unit="{nat}",
    asks="How unlikely was the least likely action that was taken?",
    label="logp min",
    presets={"esper": below(-50.0, -100.0, at=True)},
    direction=Direction.UP,
    fmt=".1f",
    fix="look for actions that masks forbid",
    tele=("TELE-160",),
)

LOG_PROB_MAX: Final = _row(
    name="overwatch.policy.log_prob_max",
    unit="{nat}",
    asks="How likely was the likeliest action that was taken?",
    label="logp max",
    presets={
        # A probability above 1 is a bug; a density may well be.
        "esper": between(below(-1.0, -50.0, at=True), Limits(critical=Limit(side=Side.ABOVE, value=0.0))),
        "ppo-continuous": NO_LIMITS,
    },
    fmt=".2f",
    tele=("TELE-161",),
)

MISMATCH_KL: Final = _row(
    name="overwatch.policy.mismatch_kl",
    unit="{nat}",
    asks="How far is the learner's policy from the one that collected, before the update?",
    label="mis kl",
    direction=Direction.DOWN,
    fmt=".4f",
    estimator=Estimator.K3,
    moment=Moment.BATCH,
)

IMPORTANCE_CLIPPED: Final = _row(
    name="overwatch.policy.importance_clipped",
    unit="1",
    asks="What share of the importance weights of older experience was cut off?",
    label="imp clip",
    direction=Direction.DOWN,
    fmt=".1%",
)

SAMPLE_SIZE: Final = _row(
    name="overwatch.policy.effective_sample_size",
    unit="1",
    asks="How large a share of the experience counts, after weighting it by its age?",
    label="ess",
    direction=Direction.UP,
    fmt=".0%",
)

ROWS: Final = (
    KL_JOINT, KL_MAX, KL_DRIFT, TRUST_REGION, KL_K1, KL_REFERENCE, CLAMPED, FIRST_RATIO_ERROR, CLIP_UP,
    CLIP_DOWN, WEIGHT_MAX, WEIGHT_MIN, WEIGHT_MEAN, LOG_PROB_MIN, LOG_PROB_MAX, MISMATCH_KL,
    IMPORTANCE_CLIPPED, SAMPLE_SIZE,
)  # fmt: skip

"""Rows about environments and the slots in them."""

from functools import partial
from typing import Final

from overwatch.catalog.metric import Cadence, Direction, Kind, Metric, NonFinite, Scope

_env = partial(Metric, kind=Kind.GAUGE, scope=Scope.ENV)
_slot = partial(Metric, kind=Kind.GAUGE, scope=Scope.SLOT)

REWARD: Final = _env(
    name="overwatch.env.reward",
    unit="{reward}",
    asks="What did the last step of this env pay?",
    tele=("TELE-638", "TELE-655"),
    direction=Direction.UP,
    fmt="+.3f",
    feeds=("field:envs.*.reward", "finding:env-non-finite"),
)

EPISODE_RETURN: Final = _env(
    name="overwatch.env.return",
    unit="{reward}",
    asks="What did this env's last finished episodes earn on average?",
    tele=("TELE-640",),
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.2f",
    cadence=Cadence.EPISODE,
    depends_on=("event:episode_ended",),
    feeds=("finding:reward-collapse", "finding:env-degraded", "field:aggregates.best"),
)

TASK_METRIC: Final = _env(
    name="overwatch.env.metric",
    unit="{metric}",
    asks="How good is this env at its task, in the run's own metric?",
    tele=("TELE-635",),
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    feeds=("finding:env-degraded", "field:aggregates.best"),
)

RENT: Final = _env(
    name="overwatch.env.rent",
    unit="{reward}",
    asks="What does this env pay for its grown parts at each step?",
    tele=("TELE-654",),
    direction=Direction.DOWN,
    fmt=".3f",
    feeds=("finding:env-degraded", "finding:env-non-finite"),
)

STEP_TIME: Final = _env(
    name="overwatch.env.step_time",
    unit="s",
    asks="How long does one step of this env take?",
    label="step",
    direction=Direction.DOWN,
    fmt=".4f",
    feeds=("finding:env-stalled", "bound:env"),
)

CRASHES: Final = Metric(
    name="overwatch.env.crashes",
    kind=Kind.COUNTER,
    unit="{crash}",
    scope=Scope.ENV,
    asks="How often did an env of this run crash?",
    fmt=".0f",
    fix="open the env: last actions, events, traceback",
    depends_on=("event:env_crashed",),
    feeds=("finding:crash-storm",),
)

HOST_LOSS: Final = _env(
    name="overwatch.env.host_loss",
    unit="1",
    asks="What is the loss of the network that this env trains, on data it does not learn from?",
    label="hst loss",
    direction=Direction.DOWN,
    fmt=".3f",
    tele=("TELE-641",),
)

METRIC_BEST: Final = _env(
    name="overwatch.env.metric_best",
    unit="{metric}",
    asks="How good was this env at best in the episode that runs, in the run's own metric?",
    label="best",
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-636",),
)

STALLED_STEPS: Final = _env(
    name="overwatch.env.stalled_steps",
    unit="{step}",
    asks="How many steps ago was that best?",
    label="since",
    direction=Direction.DOWN,
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    tele=("TELE-637",),
)

FOSSIL_PARAMETERS: Final = _env(
    name="overwatch.env.fossil_parameters",
    unit="{parameter}",
    asks="How many parameters did seeds add to this env's network for good?",
    label="fos par",
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    tele=("TELE-643",),
)

GROWTH_RATIO: Final = _env(
    name="overwatch.env.growth",
    short="growth_ratio",
    label="growth",
    unit="1",
    asks="How large is this env's network with all that is connected, over what it began with?",
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-644",),
)

SEED_SHARE: Final = _env(
    name="overwatch.env.seed_share",
    unit="1",
    asks="What share of the gradient reaches the newest connected seeds: forward and starved where near 0?",
    label="seed gr",
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt=".0%",
)

SYNERGY: Final = _env(
    name="overwatch.env.synergy",
    unit="{metric}",
    asks="How much more do the seeds add together than the sum of what each adds alone?",
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    tele=("TELE-523",),
)

METRIC_WITHOUT: Final = _env(
    name="overwatch.env.metric_without",
    unit="{metric}",
    asks="How good would this env be without any of its seeds, in the run's own metric?",
    label="without",
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-521",),
)

ATTRIBUTION_AGE: Final = _env(
    name="overwatch.env.attribution_age",
    unit="{step}",
    asks="How many steps ago was it worked out what each seed of this env adds?",
    label="attr age",
    direction=Direction.DOWN,
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    tele=("TELE-531",),
)

ROLLBACKS: Final = Metric(
    name="overwatch.env.rollbacks",
    kind=Kind.COUNTER,
    unit="{rollback}",
    scope=Scope.ENV,
    asks="How often was the network of an env of this run set back to an earlier state?",
    label="set back",
    fmt=".0f",
    fix="open the env: what germinated or blended before its loss broke?",
    depends_on=("event:env_rolled_back",),
)

ALPHA: Final = _slot(
    name="overwatch.slot.alpha",
    unit="1",
    asks="How far is the seed in this slot blended in?",
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-551",),
)

AGE: Final = _slot(
    name="overwatch.slot.age",
    unit="{step}",
    asks="For how many steps has this slot been in its stage?",
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    tele=("TELE-552",),
)

GRADIENT_HEALTH: Final = _slot(
    name="overwatch.slot.gradient_health",
    short="grad",
    unit="1",
    asks=(
        "How near is the gradient of this slot's seed to its host's, as the smaller of the two norms per "
        "weight over the larger: 1 equal, 0 vanished or exploded?"
    ),
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-514", "TELE-515", "TELE-557"),
)

CONTRIBUTION: Final = _slot(
    name="overwatch.slot.contribution",
    unit="{metric}",
    asks="How much does the seed in this slot add to its env, or would it if it were connected?",
    label="adds",
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    tele=("TELE-524",),
)

INTERACTION: Final = _slot(
    name="overwatch.slot.interaction",
    unit="{metric}",
    asks="How much does this seed add with the others beyond what it and they add alone?",
    label="interact",
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    tele=("TELE-558",),
)

BOOST: Final = _slot(
    name="overwatch.slot.boost",
    unit="{metric}",
    asks="How much of that does this seed gain from seeds that were there before it?",
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    tele=("TELE-559",),
)

SHAPLEY: Final = _slot(
    name="overwatch.slot.shapley",
    unit="{metric}",
    asks="What is this seed's share of all that the seeds add, over every order of adding them?",
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    tele=("TELE-530",),
)

STAGE: Final = Metric(
    name="overwatch.slot.stage",
    kind=Kind.STATE,
    unit="1",
    scope=Scope.SLOT,
    asks="In which stage is the seed in this slot?",
    tele=("TELE-501",),
    depends_on=("event:seed_stage_changed",),
    feeds=("finding:cull-storm", "field:aggregates.seed_census"),
)

ROWS: Final = (
    REWARD, EPISODE_RETURN, TASK_METRIC, RENT, STEP_TIME, CRASHES, HOST_LOSS, METRIC_BEST, STALLED_STEPS,
    FOSSIL_PARAMETERS, GROWTH_RATIO, SEED_SHARE, SYNERGY, METRIC_WITHOUT,
    ATTRIBUTION_AGE, ROLLBACKS, ALPHA, AGE,
    GRADIENT_HEALTH, CONTRIBUTION, INTERACTION, BOOST, SHAPLEY, STAGE,
)  # fmt: skip

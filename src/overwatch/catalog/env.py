"""Rows about environments and the slots in them."""

from typing import Final

from overwatch.catalog.metric import Audience, Cadence, Direction, Kind, Metric, NonFinite, Scope

REWARD: Final = Metric(
    name="overwatch.env.reward",
    kind=Kind.GAUGE,
    unit="{reward}",
    scope=Scope.ENV,
    asks="What did the last step of this env pay?",
    tele=("TELE-638", "TELE-655"),
    direction=Direction.UP,
    fmt="+.3f",
    feeds=("field:envs.*.reward", "finding:env-non-finite"),
)

EPISODE_RETURN: Final = Metric(
    name="overwatch.env.return",
    kind=Kind.GAUGE,
    unit="{reward}",
    scope=Scope.ENV,
    asks="What did this env's last finished episodes earn on average?",
    tele=("TELE-640",),
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.2f",
    audience=tuple(Audience),
    cadence=Cadence.EPISODE,
    depends_on=("event:episode_ended",),
    feeds=("finding:reward-collapse", "finding:env-degraded", "field:aggregates.best"),
)

TASK_METRIC: Final = Metric(
    name="overwatch.env.metric",
    kind=Kind.GAUGE,
    unit="{metric}",
    scope=Scope.ENV,
    asks="How good is this env at its task, in the run's own metric?",
    tele=("TELE-635",),
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    audience=tuple(Audience),
    feeds=("finding:env-degraded", "field:aggregates.best"),
)

RENT: Final = Metric(
    name="overwatch.env.rent",
    kind=Kind.GAUGE,
    unit="{reward}",
    scope=Scope.ENV,
    asks="What does this env pay for its grown parts at each step?",
    tele=("TELE-654",),
    direction=Direction.DOWN,
    fmt=".3f",
    feeds=("finding:env-degraded", "finding:env-non-finite"),
)

STEP_TIME: Final = Metric(
    name="overwatch.env.step_time",
    kind=Kind.GAUGE,
    unit="s",
    scope=Scope.ENV,
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
    audience=tuple(Audience),
    depends_on=("event:env_crashed",),
    feeds=("finding:crash-storm",),
)

ALPHA: Final = Metric(
    name="overwatch.slot.alpha",
    kind=Kind.GAUGE,
    unit="1",
    scope=Scope.SLOT,
    asks="How far is the seed in this slot blended in?",
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-551",),
)

AGE: Final = Metric(
    name="overwatch.slot.age",
    kind=Kind.GAUGE,
    unit="{step}",
    scope=Scope.SLOT,
    asks="For how many steps has this slot been in its stage?",
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    tele=("TELE-552",),
)

GRADIENT_HEALTH: Final = Metric(
    name="overwatch.slot.gradient_health",
    short="grad",
    kind=Kind.GAUGE,
    unit="1",
    scope=Scope.SLOT,
    asks=(
        "How near is the gradient of this slot's seed to its host's, as the smaller of the two norms per "
        "weight over the larger: 1 equal, 0 vanished or exploded?"
    ),
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt=".2f",
    tele=("TELE-514", "TELE-515", "TELE-557"),
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
    REWARD, EPISODE_RETURN, TASK_METRIC, RENT, STEP_TIME, CRASHES, ALPHA, AGE, GRADIENT_HEALTH, STAGE,
)  # fmt: skip

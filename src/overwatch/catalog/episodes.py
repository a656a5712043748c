"""Rows about the episodes and observations of an update. One value a policy update."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import draft, plain
from overwatch.catalog.metric import (
    Cadence,
    Direction,
    Kind,
    Metric,
    NonFinite,
    Scope,
    above,
    below,
)

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)

EVAL_RETURN: Final = _row(
    name="overwatch.policy.eval_return",
    unit="{reward}",
    asks="What did the episodes of the newest evaluation earn on average?",
    label="eval ret",
    direction=Direction.UP,
    non_finite=NonFinite.UNDEFINED,
    fmt="+.3f",
    aliases=plain(
        "evaluation_return", "eval_reward", "eval_mean_reward", "eval_episode_return", "eval/return",
        "eval/reward", "eval/episode_return", "eval/episodic_return", "test_return", "test_reward",
    ),
)  # fmt: skip

ROWS: Final = (
    EVAL_RETURN,
    _row(
        name="overwatch.policy.episode_length",
        unit="{step}",
        asks="How long were the episodes that ended in this update on average?",
        label="ep len",
        non_finite=NonFinite.UNDEFINED,
        fmt=".0f",
        aliases=(
            draft("rl.environment.episode.length.mean"),
            *plain("ep_len_mean", "ep_len", "episodic_length", "mean_episode_length", "episode_len_mean"),
        ),
        depends_on=("event:episode_ended",),
    ),
    _row(
        name="overwatch.policy.success_rate",
        unit="1",
        asks="What share of the episodes that ended reached their goal?",
        label="success",
        presets={"esper": below(0.7, 0.3)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        tele=("TELE-610",),
        depends_on=("event:episode_ended",),
    ),
    _row(
        name="overwatch.policy.timeout_rate",
        unit="1",
        asks="What share of the episodes that ended ran out of time?",
        label="timeout",
        presets={"esper": above(0.1, 0.2)},
        direction=Direction.DOWN,
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        depends_on=("event:episode_ended",),
    ),
    _row(
        name="overwatch.policy.observation_outliers",
        unit="1",
        asks="What share of the normalised observations lay more than three deviations from the mean?",
        label="obs out",
        presets={"esper": above(0.05, 0.10)},
        direction=Direction.DOWN,
        fmt=".1%",
        fix="look for an observation that the normaliser has not seen, or that is not scaled",
        tele=("TELE-602",),
        cadence=Cadence.UPDATE,
    ),
    _row(
        name="overwatch.policy.observation_drift",
        unit="{sigma}",
        asks="How far did the mean of the normalised observations leave 0?",
        label="obs drft",
        presets={"esper": above(1.0, 2.0)},
        direction=Direction.DOWN,
        fmt=".2f",
        fix="let the normaliser learn on, or check whether the task changed",
        tele=("TELE-603",),
    ),
    _row(
        name="overwatch.policy.inference_share",
        unit="1",
        asks="What share of collecting does the policy take to choose actions?",
        label="infer",
        fmt=".0%",
    ),
    _row(
        name="overwatch.policy.env_step_share",
        unit="1",
        asks="What share of collecting do the environments take to step?",
        label="env step",
        fmt=".0%",
    ),
    _row(
        name="overwatch.policy.warmup",
        short="warmup_s",
        unit="s",
        asks="How long did the run look for its fastest way to compute, before the first update?",
        label="warm-up",
        fmt=".1f",
    ),
)

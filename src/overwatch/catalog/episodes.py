"""Rows about the episodes and observations of an update. One value a policy update."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Library, cleanrl, draft, of, plain, rllib, sb3, trl, verl
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
_PIPELINE: Final = "training pipeline"

ROWS: Final = (
    _row(
        name="overwatch.policy.episode_length",
        short="episode_length",
        unit="{step}",
        asks="How long were the episodes that ended in this update on average?",
        label="ep len",
        non_finite=NonFinite.UNDEFINED,
        fmt=".0f",
        aliases=(
            sb3("rollout/ep_len_mean"),
            cleanrl("charts/episodic_length"),
            trl("completions/mean_length"),
            verl("response_length/mean"),
            rllib("env_runners/episode_len_mean"),
            draft("rl.environment.episode.length.mean"),
            trl("train/completions/mean_length"),
            *of(Library.TIANSHOU, "lens_stat/mean"),
            *of(Library.SKRL, "Episode / Total timesteps (mean)"),
            *of(Library.RSL_RL, "Train/mean_episode_length"),
            *of(Library.RL_GAMES, "episode_lengths/step", "episode_lengths/iter"),
            *of(Library.PUFFERLIB, "environment/episode_length"),
            *of(Library.SAMPLE_FACTORY, "len/len"),
            *plain("ep_len_mean", "ep_len", "episodic_length", "mean_episode_length", "episode_len_mean"),
        ),
        depends_on=("event:episode_ended",),
    ),
    _row(
        name="overwatch.policy.success_rate",
        short="success_rate",
        unit="1",
        asks="What share of the episodes that ended reached their goal?",
        label="success",
        presets={"esper": below(0.7, 0.3)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        tele=("TELE-610",),
        aliases=(sb3("rollout/success_rate"),),
        depends_on=("event:episode_ended",),
    ),
    _row(
        name="overwatch.policy.timeout_rate",
        short="timeout_rate",
        unit="1",
        asks="What share of the episodes that ended ran out of time?",
        label="timeout",
        presets={"esper": above(0.1, 0.2)},
        direction=Direction.DOWN,
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        depends_on=("event:episode_ended",),
        comes_with=_PIPELINE,
    ),
    _row(
        name="overwatch.policy.observation_outliers",
        short="observation_outliers",
        unit="1",
        asks="What share of the normalised observations lay more than three deviations from the mean?",
        label="obs out",
        presets={"esper": above(0.05, 0.10)},
        direction=Direction.DOWN,
        fmt=".1%",
        fix="look for an observation that the normaliser has not seen, or that is not scaled",
        tele=("TELE-602",),
        cadence=Cadence.UPDATE,
        comes_with=_PIPELINE,
    ),
    _row(
        name="overwatch.policy.observation_drift",
        short="observation_drift",
        unit="{sigma}",
        asks="How far did the mean of the normalised observations leave 0?",
        label="obs drft",
        presets={"esper": above(1.0, 2.0)},
        direction=Direction.DOWN,
        fmt=".2f",
        fix="let the normaliser learn on, or check whether the task changed",
        tele=("TELE-603",),
        comes_with=_PIPELINE,
    ),
)

"""Rows about the run as a whole and about the tower itself."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import draft
from overwatch.catalog.metric import Kind, Metric, NonFinite, Scope

_counter = partial(Metric, kind=Kind.COUNTER, scope=Scope.RUN)

UPDATES: Final = _counter(
    name="overwatch.run.updates",
    unit="{update}",
    asks="How many PPO updates has this run finished?",
    aliases=(draft("rl.train.steps"),),
    fmt=",.0f",
)

EPISODES: Final = _counter(
    name="overwatch.run.episodes",
    unit="{episode}",
    asks="How many episodes has this run finished?",
    aliases=(draft("rl.sample.episodes"),),
    fmt=",.0f",
    depends_on=("event:episode_ended",),
)

STEPS: Final = _counter(
    name="overwatch.run.steps",
    unit="{step}",
    asks="How many environment steps has this run taken, over all envs?",
    aliases=(draft("rl.sample.samples"),),
    fmt=",.0f",
    feeds=("field:run.steps_per_s",),
)

NON_FINITE: Final = _counter(
    name="overwatch.run.non_finite",
    unit="{value}",
    asks="How many values that must be finite were NaN or infinite?",
    label="nan",
    fmt=",.0f",
    fix="stop, reload the last checkpoint, look at the first field that went non-finite",
    depends_on=("event:non_finite_seen",),
    feeds=("finding:non-finite",),
)

GPU_IDLE: Final = _counter(
    name="overwatch.run.gpu.idle",
    short="gpu_idle",
    unit="s",
    asks="For how many GPU-seconds did this run's GPUs run nothing, by what held them back?",
    label="idle",
    fmt=",.0f",
    fix="look at the bound with the largest share",
)
"""In `/metrics` with the label `bound`; the sum over it is what the snapshot counts."""

PHASE_DURATION: Final = Metric(
    name="overwatch.run.phase.duration",
    short="phase_duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    scope=Scope.RUN,
    asks="How long did each phase of training take?",
    label="phase",
    depends_on=("event:phase_ended",),
    feeds=("field:phases",),
)
"""In `/metrics` with the label `phase`; a bucket names the newest span in it where spans are sent."""

SDK_DROPPED: Final = Metric(
    name="overwatch.sdk.dropped",
    short="sdk_dropped",
    kind=Kind.COUNTER,
    unit="{record}",
    scope=Scope.TOWER,
    asks="How many records did the trainer's side drop so as not to slow training?",
    label="dropped",
    non_finite=NonFinite.UNDEFINED,
    fmt=",.0f",
)

DATA_AGE: Final = Metric(
    name="overwatch.run.data_age",
    kind=Kind.GAUGE,
    unit="s",
    scope=Scope.TOWER,
    asks="How old is the newest record of this run?",
    label="age",
    tele=("TELE-702",),
    non_finite=NonFinite.UNDEFINED,
    fmt=".1f",
    feeds=("field:link.state",),
)

ROWS: Final = (UPDATES, EPISODES, STEPS, NON_FINITE, GPU_IDLE, PHASE_DURATION, SDK_DROPPED, DATA_AGE)

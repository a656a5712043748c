"""Rows about a learner that takes experience from a replay server, and about the actors that fill it.

Names are those of the learner service's first design, so that dashboards written for it find them on
`/metrics`. Counters and histograms are tallies: counted process by process, by the labels of their row.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import plain
from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope
from overwatch.catalog.services import SECONDS, VERSIONS

_learner = partial(Metric, scope=Scope.LEARNER, fmt=",.0f", non_finite=NonFinite.UNDEFINED)
_gauge = partial(_learner, kind=Kind.GAUGE)
_counter = partial(_learner, kind=Kind.COUNTER)
_seconds = partial(
    _learner, kind=Kind.HISTOGRAM, unit="s", direction=Direction.DOWN, buckets=SECONDS, fmt=".3f"
)
_actor = partial(Metric, scope=Scope.ACTOR, fmt=",.0f", non_finite=NonFinite.UNDEFINED)

SAMPLES: Final = _counter(
    name="learner.samples",
    unit="{sample}",
    asks="How many samples did the learner ask replay for, by how it ended?",
    labels=("status",),
    feeds=("finding:replay-failing",),
)
SAMPLE_LATENCY: Final = _seconds(
    name="learner.sample_latency",
    asks="How long did the learner wait for a sample?",
    label="smp wait",
    also=("replay_sample_latency_seconds",),
    aliases=plain("replay_sample_latency_seconds"),
)
SGD_STEPS: Final = _counter(
    name="learner.sgd_steps",
    unit="{step}",
    asks="How many optimiser steps has the learner taken?",
    label="sgd",
    feeds=("finding:learner-stalled",),
)
POLICY_LOSS: Final = _gauge(
    name="learner.policy_loss",
    unit="{loss}",
    asks="What was the learner's policy loss?",
    label="pol loss",
    fmt="+.4f",
    non_finite=NonFinite.CRITICAL,
)
VALUE_LOSS: Final = _gauge(
    name="learner.value_loss",
    unit="{loss}",
    asks="What was the learner's value loss?",
    label="val loss",
    direction=Direction.DOWN,
    fmt=".3f",
    non_finite=NonFinite.CRITICAL,
)
ENTROPY: Final = _gauge(
    name="learner.entropy",
    unit="{nat}",
    asks="How much does the learner's policy still explore?",
    fmt=".3f",
    non_finite=NonFinite.CRITICAL,
)
CHECKPOINT_DURATION: Final = _seconds(
    name="learner.checkpoint_duration",
    asks="How long did it take to save a checkpoint?",
    label="ckpt",
)
WEIGHTS_PUBLISH: Final = _counter(
    name="learner.weights_publish",
    unit="{version}",
    asks="How many versions of the weights did the learner publish, by how it ended?",
    label="weights",
    labels=("status",),
)
QUEUE_DEPTH: Final = _gauge(
    name="learner.replay_queue_depth",
    unit="{batch}",
    asks="How many batches has the learner fetched ahead?",
    label="prefetch",
    fmt=".0f",
    also=("prefetch_queue_size",),
    aliases=plain("prefetch_queue_size"),
    feeds=("bound:starved", "bound:learner"),
)
QUEUE_LIMIT: Final = _gauge(
    name="learner.replay_queue_limit",
    unit="{batch}",
    asks="How many batches may the learner fetch ahead?",
    label="pre max",
    fmt=".0f",
    feeds=("bound:starved", "bound:learner"),
)
DATA_AGE: Final = _learner(
    name="learner.data_age",
    kind=Kind.HISTOGRAM,
    unit="{version}",
    asks="How many versions behind was the experience that the learner trained on?",
    direction=Direction.DOWN,
    buckets=VERSIONS,
    fmt=".1f",
)
REDELIVERED: Final = _counter(
    name="learner.redelivered",
    unit="{chunk}",
    asks="How many chunks did the learner take that had been served before?",
    label="redeliv",
)
REPLAY_GAPS: Final = _counter(
    name="learner.replay_gaps",
    unit="{gap}",
    asks="How many times was experience missing after the learner resumed?",
    label="gaps",
    feeds=("finding:replay-gap",),
)
ROLLBACKS: Final = _counter(
    name="learner.rollbacks",
    unit="{rollback}",
    asks="How many times did the learner go back to an older checkpoint because its numbers broke?",
    label="rollback",
)
LEARNING_RATE_CUTS: Final = _counter(
    name="learner.learning_rate_cuts",
    unit="{cut}",
    asks="How many times did the learner cut its learning rate because its numbers broke?",
    label="lr cuts",
)
HEARTBEATS: Final = _counter(
    name="learner.heartbeats",
    unit="{heartbeat}",
    asks="How many heartbeats did the learner send to its orchestrator, by how it ended?",
    label="beats",
    labels=("status",),
    feeds=("finding:heartbeats-failing",),
)
DEGRADED: Final = _gauge(
    name="learner.degraded",
    unit="{state}",
    asks="Does the learner go on without a service that it needs (1) or not (0)?",
    fmt=".0f",
    direction=Direction.DOWN,
    feeds=("finding:learner-degraded",),
)
CHECKPOINT_STALLED: Final = _gauge(
    name="learner.checkpoint_stalled",
    unit="{state}",
    asks="Does training go on while no checkpoint can be stored (1) or not (0)?",
    label="stalled",
    fmt=".0f",
    direction=Direction.DOWN,
    feeds=("finding:checkpoint-stalled",),
)
WEIGHTS_VERSION: Final = _gauge(
    name="learner.weights_version",
    unit="{version}",
    asks="Which version of the weights did the learner publish last?",
    label="version",
)
WEIGHTS_AGE: Final = _gauge(
    name="learner.weights_age",
    unit="s",
    asks="How long ago did the learner publish weights?",
    label="wgt age",
    direction=Direction.DOWN,
    fmt=".1f",
    feeds=("finding:weights-old",),
)

ACTOR_STEPS: Final = _actor(
    name="actor.steps",
    kind=Kind.COUNTER,
    unit="{step}",
    asks="How many environment steps has the actor taken?",
)
APPENDS: Final = _actor(
    name="actor.appends",
    kind=Kind.COUNTER,
    unit="{append}",
    asks="How many times did the actor hand chunks to replay, by how it ended?",
    labels=("status",),
    feeds=("finding:replay-failing",),
)
ACTOR_VERSION: Final = _actor(
    name="actor.weights_version",
    kind=Kind.GAUGE,
    unit="{version}",
    asks="Which version of the weights does the actor act with?",
    label="version",
)
ACTOR_AGE: Final = _actor(
    name="actor.weights_age",
    kind=Kind.GAUGE,
    unit="s",
    asks="How long ago did the actor adopt the weights that it acts with?",
    label="wgt age",
    direction=Direction.DOWN,
    fmt=".1f",
)
VERSIONS_BEHIND: Final = _actor(
    name="actor.versions_behind",
    kind=Kind.GAUGE,
    unit="{version}",
    asks="How many versions behind the newest are the weights that the actor acts with?",
    label="behind",
    direction=Direction.DOWN,
    feeds=("finding:actor-stale",),
)

ROWS: Final = (
    SAMPLES,
    SAMPLE_LATENCY,
    SGD_STEPS,
    POLICY_LOSS,
    VALUE_LOSS,
    ENTROPY,
    CHECKPOINT_DURATION,
    WEIGHTS_PUBLISH,
    QUEUE_DEPTH,
    QUEUE_LIMIT,
    DATA_AGE,
    REDELIVERED,
    REPLAY_GAPS,
    ROLLBACKS,
    LEARNING_RATE_CUTS,
    HEARTBEATS,
    DEGRADED,
    CHECKPOINT_STALLED,
    WEIGHTS_VERSION,
    WEIGHTS_AGE,
    ACTOR_STEPS,
    APPENDS,
    ACTOR_VERSION,
    ACTOR_AGE,
    VERSIONS_BEHIND,
)

"""Rows about the services beside a trainer: the learner, under promised names, and the rollouts API."""

from functools import partial
from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

_learner = partial(Metric, scope=Scope.LEARNER, comes_with="learner service")
_rollouts = partial(
    Metric,
    scope=Scope.ROLLOUTS,
    kind=Kind.GAUGE,
    non_finite=NonFinite.UNDEFINED,
    comes_with="rollouts service",
)

ROWS: Final = (
    _learner(
        name="learner.samples",
        short="samples",
        kind=Kind.COUNTER,
        unit="{sample}",
        asks="How many samples did the learner ask replay for, by how it ended?",
        label="samples",
        fmt=",.0f",
    ),
    _learner(
        name="learner.sample_latency",
        short="sample_latency",
        kind=Kind.HISTOGRAM,
        unit="s",
        asks="How long did the learner wait for a sample?",
        label="smp wait",
        direction=Direction.DOWN,
    ),
    _learner(
        name="learner.sgd_steps",
        short="sgd_steps",
        kind=Kind.COUNTER,
        unit="{step}",
        asks="How many optimiser steps has the learner taken?",
        label="sgd",
        fmt=",.0f",
    ),
    _learner(
        name="learner.policy_loss",
        short="policy_loss",
        kind=Kind.GAUGE,
        unit="{loss}",
        asks="What was the learner's policy loss?",
        label="pol loss",
        fmt="+.4f",
    ),
    _learner(
        name="learner.value_loss",
        short="value_loss",
        kind=Kind.GAUGE,
        unit="{loss}",
        asks="What was the learner's value loss?",
        label="val loss",
        direction=Direction.DOWN,
    ),
    _learner(
        name="learner.entropy",
        short="entropy",
        kind=Kind.GAUGE,
        unit="{nat}",
        asks="How much does the learner's policy still explore?",
        label="entropy",
    ),
    _learner(
        name="learner.checkpoint_duration",
        short="checkpoint_duration",
        kind=Kind.HISTOGRAM,
        unit="s",
        asks="How long did it take to save a checkpoint?",
        label="ckpt",
        direction=Direction.DOWN,
    ),
    _learner(
        name="learner.weights_publish",
        short="weights_publish",
        kind=Kind.COUNTER,
        unit="{version}",
        asks="How many versions of the weights has the learner published?",
        label="weights",
        fmt=",.0f",
    ),
    _learner(
        name="learner.replay_queue_depth",
        short="replay_queue_depth",
        kind=Kind.GAUGE,
        unit="{batch}",
        asks="How many batches has the learner fetched ahead?",
        label="prefetch",
        fmt=".0f",
    ),
    _rollouts(
        name="overwatch.rollouts.queue.groups",
        short="queue_groups",
        unit="{group}",
        asks="How many groups wait for a trainer?",
        label="groups",
        fmt=",.0f",
    ),
    _rollouts(
        name="overwatch.rollouts.queue.sequences",
        short="queue_sequences",
        unit="{sequence}",
        asks="How many sequences wait for a trainer?",
        label="seqs",
        fmt=",.0f",
    ),
    _rollouts(
        name="overwatch.rollouts.data_age",
        short="data_age",
        unit="{version}",
        asks="How many versions behind is the oldest sequence that waits?",
        label="age",
        direction=Direction.DOWN,
        fmt=".0f",
    ),
    _rollouts(
        name="overwatch.rollouts.envs",
        short="envs",
        unit="{env}",
        asks="How many environments are connected?",
        label="envs",
        fmt=".0f",
    ),
    _rollouts(
        name="overwatch.rollouts.envs_paused",
        short="envs_paused",
        unit="{env}",
        asks="How many environments rest because the queue is full?",
        label="paused",
        fmt=".0f",
    ),
)

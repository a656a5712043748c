"""Rows about the rollouts API, and what rows of all services beside a trainer share.

Counters and histograms are tallies: counted process by process, by the labels of their row. A row of `env`
is one environment by the name under which it registered.
"""

from functools import partial
from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Upper ends of what a service's durations are counted by; those of phases."""
VERSIONS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
"""Upper ends of how many versions behind something was."""
LENGTHS: Final = (256, 1024, 4096, 16384, 65536)
"""Upper ends of the length classes of sequences, in tokens."""


def length_label(tokens: int) -> str:
    """The word for how long a sequence is, as a label: the length that it does not exceed.

    >>> length_label(300), length_label(1024), length_label(100_000)
    ('1024', '1024', 'longer')
    """
    return next((str(end) for end in LENGTHS if tokens <= end), "longer")


_row = partial(Metric, scope=Scope.ROLLOUTS, non_finite=NonFinite.UNDEFINED, fmt=",.0f")
_rollouts = partial(_row, kind=Kind.GAUGE)
_counted = partial(_row, kind=Kind.COUNTER)

QUEUE_GROUPS: Final = _rollouts(
    name="overwatch.rollouts.queue.groups",
    short="queue_groups",
    unit="{group}",
    asks="How many groups wait for a trainer?",
    label="groups",
)
QUEUE_SEQUENCES: Final = _rollouts(
    name="overwatch.rollouts.queue.sequences",
    short="queue_sequences",
    unit="{sequence}",
    asks="How many sequences wait for a trainer?",
    label="seqs",
    feeds=(
        "finding:rollouts-starved",
        "finding:rollouts-full",
    ),
)
DATA_AGE: Final = _rollouts(
    name="overwatch.rollouts.data_age",
    unit="{version}",
    asks="How many versions behind is the oldest sequence that waits?",
    direction=Direction.DOWN,
    feeds=("finding:rollouts-stale",),
)
ENVS: Final = _rollouts(
    name="overwatch.rollouts.envs",
    unit="{env}",
    asks="How many environments are connected?",
    feeds=("finding:rollouts-env-dead",),
)
ENVS_PAUSED: Final = _rollouts(
    name="overwatch.rollouts.envs_paused",
    unit="{env}",
    asks="How many environments rest because the queue is full?",
    label="paused",
)
ENVS_SILENT: Final = _rollouts(
    name="overwatch.rollouts.envs_silent",
    unit="{env}",
    asks="How many environments are registered and have been silent for longer than their lease?",
    label="silent",
    direction=Direction.DOWN,
    feeds=("finding:rollouts-env-dead",),
)
ENV_SILENCE: Final = _rollouts(
    name="overwatch.rollouts.env_silence",
    unit="s",
    asks="How long has the environment that has been silent longest not called?",
    label="silence",
    direction=Direction.DOWN,
    feeds=("finding:rollouts-env-dead",),
)
CAPACITY: Final = _rollouts(
    name="overwatch.rollouts.capacity",
    unit="{sequence}",
    asks="How many sequences may wait before new ones are held back?",
    feeds=("finding:rollouts-full",),
)
BATCH_SIZE: Final = _rollouts(
    name="overwatch.rollouts.batch_size",
    unit="{sequence}",
    asks="How many sequences does the trainer take at once?",
    label="batch",
    feeds=("finding:rollouts-starved",),
)
MAX_STALENESS: Final = _rollouts(
    name="overwatch.rollouts.max_staleness",
    unit="{version}",
    asks="How many versions behind may a sequence be?",
    label="max age",
    feeds=("finding:rollouts-stale",),
)
LEASES: Final = _rollouts(
    name="overwatch.rollouts.leases",
    unit="{lease}",
    asks="How many batches are leased to a trainer and not acknowledged?",
)
TICKETS: Final = _rollouts(
    name="overwatch.rollouts.tickets",
    unit="{ticket}",
    asks="How many groups may still come under tickets that have not expired?",
)
ACCEPTED: Final = _counted(
    name="overwatch.rollouts.accepted",
    unit="{sequence}",
    asks="How many sequences were accepted, by environment?",
    labels=("env",),
    feeds=(
        "finding:rollouts-starved",
        "finding:rollouts-stale",
    ),
)
SERVED: Final = _counted(
    name="overwatch.rollouts.served",
    unit="{sequence}",
    asks="How many sequences did a trainer acknowledge, by environment?",
    labels=("env",),
    feeds=(
        "finding:rollouts-starved",
        "finding:rollouts-full",
    ),
)
EXPIRED: Final = _counted(
    name="overwatch.rollouts.expired",
    unit="{sequence}",
    asks="How many accepted sequences became too old before they were served, by environment?",
    labels=("env",),
    feeds=("finding:rollouts-stale",),
)
REFUSED: Final = _counted(
    name="overwatch.rollouts.refused",
    unit="{sequence}",
    asks="How many sequences were refused, by environment, reason and length?",
    labels=("env", "reason", "length"),
    max_series=256,
)
REDELIVERED: Final = _counted(
    name="overwatch.rollouts.redelivered",
    unit="{sequence}",
    asks="How many sequences were served again because no acknowledgement came?",
    label="redeliv",
)
BATCHES: Final = _counted(
    name="overwatch.rollouts.batches",
    unit="{batch}",
    asks="How many times did a trainer ask for a batch, by how it ended?",
    labels=("status",),
    feeds=("finding:rollouts-starved",),
)
PAUSES: Final = _counted(
    name="overwatch.rollouts.pauses",
    unit="{pause}",
    asks="How many times was an environment asked to rest because the queue was full?",
    labels=("env",),
)
WAIT_TIME: Final = _row(
    name="overwatch.rollouts.wait_time",
    kind=Kind.HISTOGRAM,
    unit="s",
    asks="How long did a group wait from its acceptance until it was served?",
    label="wait",
    direction=Direction.DOWN,
    buckets=SECONDS,
    fmt=".1f",
)
AGE: Final = _row(
    name="overwatch.rollouts.age",
    kind=Kind.HISTOGRAM,
    unit="{version}",
    asks="How many versions behind was a group when it was served, by who reports it?",
    direction=Direction.DOWN,
    labels=("source",),
    buckets=VERSIONS,
)

ROWS: Final = (
    QUEUE_GROUPS,
    QUEUE_SEQUENCES,
    DATA_AGE,
    ENVS,
    ENVS_PAUSED,
    ENVS_SILENT,
    ENV_SILENCE,
    CAPACITY,
    BATCH_SIZE,
    MAX_STALENESS,
    LEASES,
    TICKETS,
    ACCEPTED,
    SERVED,
    EXPIRED,
    REFUSED,
    REDELIVERED,
    BATCHES,
    PAUSES,
    WAIT_TIME,
    AGE,
)

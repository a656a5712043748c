"""Kinds of findings in words: what a person reads in place of a code.

Owns the phrases of codes whose own words do not read as a noun. Pure; must not know how findings are made.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from overwatch.catalog import Scope, find
from overwatch.catalog.bounds import ROWS
from overwatch.catalog.runbooks import RUNBOOKS

PHRASES: Final[Mapping[str, str]] = MappingProxyType({
    "actor-stale": "stale actor",
    "checkpoint-slow": "slow checkpoints",
    "checkpoint-stalled": "stalled checkpoints",
    "checkpoints-stopped": "no more checkpoints",
    "clock-low": "low clock",
    "critic-diverged": "diverged critic",
    "critic-failing": "failing critic",
    "disk-full": "full disk",
    "ecc-uncorrectable": "uncorrectable memory errors",
    "env-crashed-many": "many crashed envs",
    "env-degraded": "degraded envs",
    "env-non-finite-many": "non-finite values of many envs",
    "env-stalled-many": "many stalled envs",
    "entropy-explosion": "exploding entropy",
    "factor-off": "failed factors",
    "gpu-fault": "GPU fault",
    "gpu-lost": "GPU loss",
    "gradient-spikes": "gradient spikes",
    "heartbeats-failing": "failing heartbeats",
    "heartbeats-late": "late heartbeats",
    "host-memory": "short host memory",
    "kl-spike": "KL spike",
    "learner-degraded": "degraded learner",
    "learner-stalled": "stalled learner",
    "learning-rate-zero": "zero learning rate",
    "likelihood-displacement": "unlikely preferred answers",
    "loss-diverged": "diverged loss",
    "non-finite": "non-finite values",
    "oom-forecast": "memory about to run out",
    "policy-frozen": "frozen policy",
    "producer-gone": "lost producers",
    "queue-starved": "starved queue",
    "rank-diverged": "diverged numbers",
    "replay-failing": "failing replay",
    "reward-collapse": "reward collapse",
    "rolled-back": "rollback",
    "rollouts-env-dead": "dead environments",
    "rollouts-full": "full rollouts queue",
    "rollouts-stale": "stale rollouts",
    "rollouts-starved": "starved rollouts queue",
    "service-down": "lost service",
    "steps-too-large": "too large steps",
    "training-stalled": "stalled training",
    "weights-old": "old weights",
    "weights-slow": "slow weights",
    "zero-gradients": "zero gradients",
})  # fmt: skip
"""By code a finding in a few words, where those of the code do not read as a noun, or imply the row."""
_TITLES: Final = {**PHRASES, "io-starvation": "I/O starvation"}


SLOWS: Final = frozenset({
    "thermal-throttle", "power-throttle", "clock-low", "straggler", "throughput-regression",
    "throughput-below-baseline", "checkpoint-slow", "recompiles", "policy-update-time", "actor-stale",
    "rollouts-full", "collector-away", *(row.shared.code for row in ROWS if row.shared is not None),
})  # fmt: skip
"""Codes of what slows a run, and wastes nothing that it made."""


def title(code: str) -> str:
    """A kind of finding as a heading.

    >>> title("policy-kl-divergence"), title("weights-slow"), title("thermal-throttle")
    ('KL beyond its limit', 'Slow weights', 'Thermal throttle')
    """
    of_row = code.startswith("policy-") and code not in RUNBOOKS
    row = find(code.removeprefix("policy-").replace("-", "_"), Scope.POLICY) if of_row else None
    words = _TITLES.get(code, code.replace("-", " ")) if row is None else f"{row.label} beyond its limit"
    return words[:1].upper() + words[1:]

"""The phases of a training loop that diagnosis knows, and the other words for them.

A phase of any name is measured and shown; one of these names also explains what a machine waits for.
"""

from enum import Enum
from typing import Final


class Phase(Enum):
    """What a stretch of the training loop is spent on; the value is the name to give it."""

    ROLLOUT = "rollout"
    """Collecting experience, waiting and inference included."""
    ENV_WAIT = "env_wait"
    """Waiting for environments to step."""
    INFERENCE = "inference"
    """The policy choosing actions."""
    ADVANTAGE = "advantage"
    """Returns and advantages of what was collected."""
    UPDATE = "update"
    """Gradient steps."""
    SYNC = "sync"
    """Waiting for the other ranks: barriers, all-reduce."""
    WEIGHTS = "weights"
    """Bringing new weights to those who collect."""
    QUEUE_WAIT = "queue_wait"
    """The learner waiting for experience to arrive."""
    CHECKPOINT = "checkpoint"
    """Saving."""
    LOAD = "load"
    """Waiting for data."""
    EVALUATION = "evaluation"
    """Playing without learning, to see how good the policy is."""
    LOG = "log"
    """Making up and handing over the numbers of an update."""
    WARM_UP = "warm_up"
    """Compiling, and measuring how to compute, before the first update."""


DURATION_ENDS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Upper ends of what a phase's durations are counted by, in seconds; one more holds what takes longer."""

_OTHER_WORDS: Final[dict[Phase, tuple[str, ...]]] = {
    Phase.ROLLOUT: ("collect", "collection", "collect_rollouts", "sample", "sampling", "generation"),
    Phase.ENV_WAIT: ("env", "env_step", "step_wait"),
    Phase.INFERENCE: ("act", "policy", "forward"),
    Phase.ADVANTAGE: ("estimate", "gae", "returns", "advantages", "prepare"),
    Phase.UPDATE: ("train", "learn", "optimize", "optimise", "sgd"),
    Phase.SYNC: ("barrier", "wait", "allreduce", "all_reduce"),
    Phase.WEIGHTS: (
        "weight_sync",
        "sync_weights",
        "update_weights",
        "weight_update",
        "publish_weights",
        "broadcast_weights",
    ),
    Phase.QUEUE_WAIT: ("wait_for_data", "wait_for_rollouts", "replay_wait", "dequeue"),
    Phase.CHECKPOINT: ("save", "checkpointing", "last_checkpoint"),
    Phase.LOAD: ("data", "fetch", "io", "data_loading"),
    Phase.EVALUATION: ("eval", "evaluate", "validation", "validate", "test"),
    Phase.LOG: ("logging", "report", "reporting"),
    Phase.WARM_UP: ("warmup",),
}
STARTUP: Final = "startup"
"""The phase of what a run does before its first update."""
SHUTDOWN_SPAN: Final = "shutdown"
"""What a run does after its last update, under which the spans of those phases are."""
LOOP_SPAN: Final = "rl.loop"
"""The span of one turn of the training loop, under which those of its phases are."""
_DRAFT_SPANS: Final = {Phase.ROLLOUT: "rl.sample", Phase.UPDATE: "rl.train", Phase.WEIGHTS: "rl.sync"}
"""Phases whose spans OpenTelemetry's draft for reinforcement learning has names for."""
_REWARD_SPAN: Final = "rl.reward"
_REWARD_WORDS: Final = frozenset({"reward", "rewards", "reward_model", "scoring", "score", "verify"})
"""Names of a phase of the draft's that explains no bound."""
_KNOWN: Final = {word: phase for phase, words in _OTHER_WORDS.items() for word in (phase.value, *words)}


def parse_phase(name: str) -> Phase | None:
    """The phase that a name stands for, in any case and with any of `_`, `-`, `.` and space."""
    return _KNOWN.get(_plain(name))


def is_pause(name: str) -> bool:
    """Whether a phase is no step of every update, as far as its name shows: it may take what it takes.

    >>> is_pause("collect"), is_pause("eval"), is_pause("record video")
    (False, True, True)
    """
    return parse_phase(name) in (None, Phase.EVALUATION, Phase.CHECKPOINT, Phase.WARM_UP)


def span_of(name: str) -> str:
    """The name of the span of a phase: the draft's where it has one, else the phase's own.

    >>> span_of("collect"), span_of("reward-model"), span_of("env_wait")
    ('rl.sample', 'rl.reward', 'env_wait')
    """
    if _plain(name) in _REWARD_WORDS:
        return _REWARD_SPAN
    phase = parse_phase(name)
    return name if phase is None else _DRAFT_SPANS.get(phase, name)


def span_names(phase: Phase) -> tuple[str, ...]:
    """The names that spans of a phase may have."""
    drafted = _DRAFT_SPANS.get(phase)
    return (phase.value, *words_of(phase)) if drafted is None else (drafted,)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").replace(".", "_")


def words_of(phase: Phase) -> tuple[str, ...]:
    """The other names of a phase."""
    return _OTHER_WORDS[phase]

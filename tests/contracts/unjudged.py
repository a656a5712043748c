"""What nothing judges, with the reason; and what each kind of event is judged by.

Owns the reasons, so that a row or an event that is added is either judged or left alone on purpose. A row is
judged where it has limits, is watched for drift, or feeds a finding or a bound; a number that must be finite
is judged for that in any case. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_SETTING: Final = "A setting of the run, or follows from one: what it does shows in KL, clipping and returns."
_BESIDE: Final = (
    "Another estimate beside one that is judged; two alarms for one thing decide no more than one."
)
_SCALE: Final = "Its healthy size is the task's own, and neither its sign nor its level means trouble."
_SHOWN: Final = "Explains others that are judged; alone it can be high or low in a healthy run."
_WHERE: Final = "Shows where time goes; whether it is too much is judged by phases and throughput."
_WORLD: Final = (
    "A count or share of that world's own parts, which differ with its stage; its returns are judged."
)
_GOODHART: Final = "It shows how far the two returns are apart; the returns themselves are judged."
_CAUSE: Final = "It becomes a fault where it slows the device down, which throttling is judged by."
_TRAFFIC: Final = "How fast is enough depends on the work; waiting for it is judged by phases and queues."
_COUNT: Final = "It only counts up; how fast is judged as throughput, and whether at all as a stall."
_SERVICE: Final = "It shows what a service does and how long that takes; what waits for it is judged."
_SEED: Final = "It belongs to a stage of a seed; culls and failed gates are what is judged."

_BY_REASON: Final[Mapping[str, tuple[str, ...]]] = {
    _SETTING: ("learning_rate", "clip_range", "epsilon"),
    "A policy that samples learns from what is old on purpose; returns and throughput are judged.": (
        "memory_fill", "memory_age",
    ),
    _BESIDE: (
        "kl_joint", "kl_max", "policy_drift_rate", "trust_region_health",
        "value_loss_unclipped", "entropy_clip_correlation",
    ),
    _SCALE: (
        "policy_loss", "value_mean", "value_min", "td_error_std", "reward_std",
        "episode_length", "popart_mean", "popart_std",
    ),
    _SHOWN: ("ratio_mean", "value_clipped"),
    "A few episodes now and then, often with another policy than trains; the return of training is judged.": (
        "eval_return",
    ),
    _WHERE: ("inference_share", "env_step_share", "warmup_s"),
    "Evidence of the bounds, which are judged; alone it may be a loop that collects and learns in turn.": (
        "gpu dip_share", "gpu dip_p95_s",
    ),
    "Early stops and gradients that are not finite skip them, and both are judged.": ("minibatches_skipped",),
    _WORLD: (
        "reward_stage_bonus", "reward_hindsight", "scaffolds", "scaffold_delay", "reward_fossil_bonus",
        "reward_rent", "reward_occupancy", "reward_action_cost", "reward_terminal", "hypervolume",
        "germination_rate", "fossilise_rate",
    ),
    "It describes the network that an env grows; its metric and its returns are judged.": (
        "env host_loss", "env metric_best", "env stalled_steps", "env fossil_parameters", "env growth_ratio",
        "env synergy", "env metric_without", "env attribution_age", "env rollbacks",
    ),
    "The share of new seeds is judged as the policy's row of an update, over all envs.": ("env seed_share",),
    "What a seed adds may be nothing for long; rewards and returns are judged.": (
        "slot contribution", "slot interaction", "slot boost", "slot shapley",
    ),
    "What a rollback costs; that hosts are rolled back is judged by its own row.": ("reward_penalty",),
    _GOODHART: ("goodhart_gap", "survival"),
    _SEED: ("slot alpha", "slot age", "slot grad"),
    _CAUSE: ("gpu temperature_c",),
    _TRAFFIC: (
        "gpu pcie_receive_bytes_per_s", "gpu pcie_transmit_bytes_per_s", "gpu nvlink_receive_bytes_per_s",
        "gpu nvlink_transmit_bytes_per_s", "host disk_read_bytes_per_s", "host disk_write_bytes_per_s",
        "host network_bytes_per_s",
    ),
    "Part of the GPU's used memory, which is judged.": ("gpu process_memory_bytes",),
    "All cores may be full in a healthy run; the busiest one is judged, and phases that wait for envs.": (
        "host cpu_utilization",
    ),
    _COUNT: ("popart_count", "run updates", "run episodes", "run steps"),
    "What the bounds of each lane cost in all; the bounds are judged.": ("run gpu_idle",),
    "Each phase is judged by its share of the loop, and a phase that does not end as a stall.": (
        "run phase_duration",
    ),
    "The alert telemetry-dropped is about it: a run is not ill because its telemetry is.": (
        "tower sdk_dropped",
    ),
    "The link is judged by it: stale, lost, catching up.": ("tower data_age",),
    _SERVICE: (
        "learner sample_latency", "learner checkpoint_duration",
        "learner weights_publish", "learner data_age", "learner redelivered",
        "learner rollbacks", "learner learning_rate_cuts",
        "learner weights_version",
        "actor steps", "actor weights_version", "actor weights_age",

        "replay items", "replay steps", "replay bytes", "replay leases",
        "replay inserted", "replay sampled", "replay refused", "replay removed", "replay redelivered",
        "replay late", "replay request_duration",
        "orchestrator heartbeat_latency", "orchestrator http_request_duration",
        "orchestrator run_state_transitions", "orchestrator health_events", "orchestrator commands",
    ),
    "The policy's rows of the same update are judged; these are beside them by their first names.": (
        "learner policy_loss", "learner value_loss", "learner entropy",
    ),
    "It grows with how far actors are behind, which is judged; the update corrects for it.": (
        "mismatch_kl", "importance_clipped", "effective_sample_size",
    ),
    "It shows who gets what and what it costs; starved, full, stale and dead are what is judged.": (
        "rollouts queue_groups", "rollouts envs_paused", "rollouts leases", "rollouts tickets",
        "rollouts refused", "rollouts redelivered", "rollouts pauses", "rollouts wait_time", "rollouts age",
    ),
}  # fmt: skip
"""Rows by why nothing judges them: the short name, with its scope before it where that is not the policy."""

UNJUDGED: Final[Mapping[str, str]] = MappingProxyType(
    {row: reason for reason, rows in _BY_REASON.items() for row in rows}
)
"""The reason by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """What a kind of event is judged by."""

    findings: tuple[str, ...] = ()
    """Codes of the findings that it can make."""
    why_not: str = ""
    """Why it makes none."""


EVENTS: Final[Mapping[str, EventRow]] = MappingProxyType(
    {
        "run_started": EventRow(findings=("overlapping-writers",)),
        "run_finished": EventRow(findings=("run-failed", "run-lost")),
        "measured": EventRow(findings=("non-finite", "env-non-finite", "too-many-names")),
        "tallied": EventRow(findings=("too-many-names",)),
        "episode_ended": EventRow(findings=("reward-collapse", "env-degraded")),
        "action_taken": EventRow(findings=("env-degraded",)),
        "seed_stage_changed": EventRow(findings=("cull-storm", "env-degraded")),
        "gate_evaluated": EventRow(findings=("env-degraded",)),
        "env_crashed": EventRow(findings=("env-crashed", "crash-storm")),
        "env_rolled_back": EventRow(
            why_not="The trainer has repaired it already; an env that goes on falling shows in its returns."
        ),
        "envs_removed": EventRow(why_not="The trainer ended them itself; nothing of theirs is waited for."),
        "non_finite_seen": EventRow(findings=("non-finite", "env-non-finite")),
        "early_stopped": EventRow(findings=("early-stop", "steps-too-large")),
        "curriculum_changed": EventRow(
            why_not="Another task is no fault; what is judged by the past begins anew with it."
        ),
        "checkpoint_saved": EventRow(findings=("checkpoints-stopped", "disk-full")),
        "training_recovered": EventRow(findings=("learning-rate-cut", "rolled-back")),
        "run_state_changed": EventRow(
            why_not="Who controls the run asked for it; what stands still while it is paused is no stall."
        ),
        "command_applied": EventRow(why_not="Who sent the command is answered, and the feed shows it."),
        "finding_acknowledged": EventRow(why_not="An operator's word about a finding that is there already."),
        "phase_began": EventRow(findings=("training-stalled",)),
        "phase_ended": EventRow(findings=("training-stalled", "throughput-regression", "straggler")),
        "log_line": EventRow(findings=("gpu-lost", "ecc-uncorrectable", "gpu-fault")),
    }
)
"""By tag."""

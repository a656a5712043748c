"""The fault corpus: every fault of the simulator with what it must be found as, and how soon.

Owns the labels and the classes with their bounds; the bounds are promises, not what was measured. Must not
know how anything is found.
"""

from enum import Enum
from typing import Final

import msgspec

from overwatch.simulate.faults import Planned
from overwatch.simulate.settings import Settings


class Class(Enum):
    """What kind of trouble, which decides how soon it must be found."""

    FACT = "fact"
    """A crash, a NaN, an end: said once, true at once."""
    MACHINE = "machine"
    """A level of a machine, or silence."""
    LOOP = "loop"
    """What the training loop spends its time on: a share of the newest twenty seconds."""
    POLICY = "policy"
    """Rows of the policy that jump."""
    LEAK = "leak"
    """Memory that fills up: to be forecast while most of what was left is there."""
    FLEET = "fleet"
    """Envs and seeds, judged by what they did over a while."""
    DRIFT = "drift"
    """What creeps."""
    HARMLESS = "harmless"
    """It looks like trouble and is none."""

    @property
    def bound(self) -> float | None:
        """Seconds (updates, of the policy: one a second here) within which it must be found."""
        return _BOUNDS.get(self.value)


_BOUNDS: Final = {
    "fact": 2.0,
    "machine": 10.0,
    "loop": 20.0,
    "policy": 5.0,
    "leak": 10.0,
    "fleet": 30.0,
    "drift": 50.0,
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled run."""

    name: str
    """A fault of the simulator; empty for a run without one."""
    kind: Class
    expects: tuple[str, ...] = ()
    """Codes of findings, any of which finds it; `env:` and a status where the board is where it shows,
    `bound:` and a verdict where that is what holds a lane back."""
    at_s: int = 50
    seconds: int = 80
    seed: int = 11
    slots: int = 3
    rate_hz: float = 10.0

    @property
    def label(self) -> str:
        """The fault, or `healthy` and its seed."""
        return self.name or f"healthy-{self.seed}"

    @property
    def settings(self) -> Settings:
        """Two lanes of eight envs."""
        faults = (Planned(name=self.name, at_s=self.at_s),) if self.name else ()
        return Settings(
            gpus=2, envs=8, slots=self.slots, rate_hz=self.rate_hz, seconds=self.seconds, seed=self.seed,
            faults=faults, run_id=self.label,
        )  # fmt: skip


def _cases(
    kind: Class, found_as: dict[str, tuple[str, ...]], *, at_s: int = 50, seconds: int = 80
) -> list[Case]:
    return [
        Case(name=name, kind=kind, expects=codes, at_s=at_s, seconds=seconds)
        for name, codes in found_as.items()
    ]


CASES: Final[tuple[Case, ...]] = (
    *_cases(
        Class.FACT,
        {
            "crash-storm": ("env-crashed", "crash-storm"),
            "env-crash": ("env-crashed",),
            "env-nan": ("env-non-finite", "non-finite"),
            "env-nan-column": ("env-non-finite",),
            "gpu-off-bus": ("gpu-lost",),
            "nan": ("non-finite",),
            "silent-nan": ("non-finite",),
            "run-failed": ("run-failed",),
            "killed": ("run-lost",),
        },
        seconds=60,
    ),
    *_cases(
        Class.MACHINE,
        {
            "thermal-throttle": ("thermal-throttle",),
            "straggler": ("straggler",),
            "io-starvation": ("io-starvation",),
            "stale": ("telemetry-stale", "run-lost"),
            "env-slow": ("env-stalled",),
            "names-flood": ("too-many-names",),
            "power-throttle": ("power-throttle",),
            "weights-slow": ("weights-slow",),
            "saving-slow": ("io-starvation",),
            "queue-starved": ("queue-starved",),
            "small-kernels": ("bound:HOST-BOUND",),
            "training-stuck": ("training-stalled",),
            "gpu-silent": ("gpu-lost",),
            "ecc-errors": ("ecc-uncorrectable",),
            "disk-full": ("disk-full",),
        },
    ),
    *_cases(
        Class.LOOP,
        {
            "envs-slow": ("bound:ENV-BOUND",),
            "inference-slow": ("bound:INFER-BOUND",),
            "learner-slow": ("bound:LEARNER-BOUND",),
            "sawtooth": ("bound:SYNC-BOUND",),
        },
        seconds=120,
    ),
    *_cases(Class.DRIFT, {"memory-creep": ("oom-forecast",)}, at_s=60, seconds=150),
    *_cases(Class.DRIFT, {"host-leak": ("host-memory",), "disk-fills": ("disk-full",)}, seconds=120),
    # The newest checkpoint is that of second 120, and they come each half minute.
    *_cases(Class.DRIFT, {"checkpoints-end": ("checkpoints-stopped",)}, at_s=149, seconds=220),
    *_cases(Class.DRIFT, {"slowdown": ("throughput-regression",)}, at_s=170, seconds=230),
    *_cases(
        Class.POLICY,
        {
            "policy-collapse": ("policy-collapse", "policy-kl-divergence", "steps-too-large"),
            "kl-spike": ("kl-spike",),
            "kl-high": ("policy-kl-divergence",),
            "clip-high": ("policy-clip-fraction",),
            "steps-too-large": ("steps-too-large",),
            "entropy-collapse": ("policy-entropy", "policy-collapse"),
            "gradient-explosion": ("policy-grad-norm",),
            "critic-failure": ("critic-failing", "policy-explained-variance", "policy-value-loss"),
            "ratio-explosion": ("policy-ratio-max",),
            "ratio-collapse": ("policy-ratio-min",),
            "sampler-mismatch": ("policy-first-ratio-error",),
            "updates-slow": ("policy-update-time",),
            "policy-frozen": ("policy-frozen",),
            "critic-diverged": ("critic-diverged",),
            "gradient-spikes": ("gradient-spikes",),
            "zero-gradients": ("zero-gradients",),
            "learning-rate-zero": ("learning-rate-zero",),
        },
        seconds=65,
    ),
    # Its return is that of whole episodes, which end some seconds after they went wrong.
    *_cases(Class.FLEET, {"silent-collapse": ("policy-collapse",)}),
    # Within the warm-up.
    *_cases(Class.POLICY, {"early-explosion": ("policy-collapse",)}, at_s=5, seconds=15),
    # Its slots would speak for it.
    Case(name="env-silent", kind=Class.MACHINE, expects=("env-stalled",), slots=0),
    *_cases(Class.LEAK, {"oom-climb": ("oom-forecast",)}),
    *_cases(
        Class.FLEET,
        {
            "cull-storm": ("cull-storm",),
            "reward-collapse": ("reward-collapse", "slow-drift"),
            "env-reward": ("env-degraded",),
        },
        seconds=100,
    ),
    # Judged within an episode, so these must be of more than fifty steps.
    Case(name="env-rent", kind=Class.FLEET, expects=("env-degraded",), rate_hz=25.0),
    # A policy that mostly waits repeats itself for dozens of steps; a stuck env does so for hundreds.
    Case(name="env-actions", kind=Class.FLEET, expects=("env-degraded",), rate_hz=25.0),
    *_cases(
        Class.DRIFT,
        {
            "kl-creep": ("slow-drift",),
            "clip-creep": ("slow-drift",),
            "explained-variance-creep": ("slow-drift",),
            "returns-creep": ("slow-drift", "reward-collapse"),
        },
        at_s=60,
        seconds=120,
    ),
    # Two slopes and a hold need forty updates.
    *_cases(Class.DRIFT, {"reward-hacking": ("reward-hacking",)}, at_s=0, seconds=120),
    *_cases(
        Class.HARMLESS,
        {
            "curriculum-step": (),
            "noisy-updates": (),
            "early-stops": (),
            "solved": (),
            "sparse-rewards": (),
            "learning-rate-drop": (),
            "buffer-fills": (),
            "measured-early": (),
        },
        at_s=40,
        seconds=150,
    ),
    *_cases(Class.HARMLESS, {"odd-machine": (), "best-checkpoints": ()}, at_s=0, seconds=150),
    *_cases(
        Class.HARMLESS,
        {"learning-rate-warm-up": (), "take-off": (), "grpo": ()},
        at_s=0,
        seconds=180,
    ),
    *(Case(name="", kind=Class.HARMLESS, seconds=150, seed=seed) for seed in (1, 2, 3)),
)

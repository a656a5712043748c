"""Faults of the policy: rows that jump, creep or go blank; and updates that only look like trouble.

A fault multiplies rows or adds to them; seconds are updates, of which a simulated run does one a second.
"""

from typing import Final

from msgspec.structs import replace

from overwatch.simulate.conditions import Conditions
from overwatch.simulate.ramp import Fault, ramp

_FULL_S: Final = 2.0
"""Seconds until a jump is whole."""


def _times(**factors: float) -> Fault:
    """Rows that become so many times what they were, within two updates."""

    def fault(now: Conditions, since_s: float) -> Conditions:
        whole = ramp(since_s + 1, _FULL_S)
        grown = {row: 1 + (factor - 1) * whole for row, factor in factors.items()}
        return replace(now, times={**now.times, **grown})

    return fault


def _creeps(**rates: float) -> Fault:
    """Rows that grow by a share of what they were with each update, or shrink."""

    def fault(now: Conditions, since_s: float) -> Conditions:
        grown = {row: max(0.0, 1 + rate * since_s) for row, rate in rates.items()}
        return replace(now, times={**now.times, **grown})

    return fault


def _becomes(**factors: float) -> Fault:
    """Rows that are so many times what they were from one update to the next."""
    return lambda now, _since_s: replace(now, times={**now.times, **factors})


_STILL: Final = {"kl_divergence": 0.0, "kl_joint": 0.0, "kl_max": 0.0, "clip_fraction": 0.0}


def policy_frozen(now: Conditions, since_s: float) -> Conditions:
    """One update ruins all weights: none moves the policy any more, the critic is lost, returns fall."""
    ruined = replace(now, misery=1.0, plus={**now.plus, "explained_variance": -4.0})
    return _becomes(**_STILL, entropy=0.0, value_loss=1e13, grad_norm=1e6)(ruined, since_s)


def critic_diverged(now: Conditions, since_s: float) -> Conditions:
    """The critic's loss is ten orders of magnitude too large, and explains nothing."""
    return _becomes(value_loss=1e10)(replace(now, plus={**now.plus, "explained_variance": -3.0}), since_s)


def silent_collapse(now: Conditions, since_s: float) -> Conditions:
    """Entropy and returns fall within ten updates; KL and clipping are as ever."""
    gone = ramp(since_s + 1, 10)
    sure = replace(now, misery=max(now.misery, gone))
    return replace(sure, times={**now.times, "entropy": 1 - 0.8 * gone})


def gradient_spikes(now: Conditions, since_s: float) -> Conditions:
    """One update in fifteen has gradients forty times as large as usual."""
    return _becomes(grad_norm=40.0)(now, since_s) if since_s % 15 < 1 else now


def kl_spike(now: Conditions, since_s: float) -> Conditions:
    """One update moves the policy sixty times as far as usual."""
    return _times(kl_divergence=60.0)(now, _FULL_S) if since_s < 1 else now


def critic_failure(now: Conditions, since_s: float) -> Conditions:
    """The critic is worse than none: its loss is eight times what it was, explained variance below 0."""
    fallen = replace(now, plus={**now.plus, "explained_variance": -1.5 * ramp(since_s + 1, _FULL_S)})
    return _times(value_loss=8.0)(fallen, since_s)


def silent_nan(now: Conditions, _since_s: float) -> Conditions:
    """Loss and gradient are NaN, and the trainer tells no fact of it."""
    return replace(now, lost=now.lost | {"policy_loss", "grad_norm"})


def returns_creep(now: Conditions, since_s: float) -> Conditions:
    """What the policy earns sinks, slowly."""
    return replace(now, misery=max(now.misery, ramp(since_s, 150)))


def explained_variance_creeps(now: Conditions, since_s: float) -> Conditions:
    """The critic explains a little less with each update."""
    return replace(now, plus={**now.plus, "explained_variance": -0.015 * since_s})


def names_flood(now: Conditions, _since_s: float) -> Conditions:
    """Each update tells a hundred names that nobody has heard of."""
    return replace(now, names=100)


def noisy_updates(now: Conditions, _since_s: float) -> Conditions:
    """One update in twenty goes three times as far as usual: bad luck of a batch, and nothing is wrong."""
    return replace(now, wild=0.05)


def early_stops(now: Conditions, _since_s: float) -> Conditions:
    """Updates go beyond their target and are stopped in time, within the warning band."""
    return replace(now, stopping=True)


def solved(now: Conditions, since_s: float) -> Conditions:
    """The policy becomes sure of itself within a minute, and earns its best."""
    return replace(now, times={**now.times, "entropy": 1 - 0.92 * ramp(since_s, 60)})


def sparse_rewards(now: Conditions, _since_s: float) -> Conditions:
    """Only the end of an episode pays, all or nothing; the trainer says that the task changed."""
    return replace(now, sparse=True, level=now.level + 1)


def learning_rate_drop(now: Conditions, _since_s: float) -> Conditions:
    """A schedule divides the learning rate by ten: steps and gradients shrink, and nothing is wrong."""
    less = {"learning_rate": 0.1, "kl_divergence": 0.15, "clip_fraction": 0.2, "grad_norm": 0.7}
    return replace(now, times={**now.times, **less})


def warming_up(now: Conditions, since_s: float) -> Conditions:
    """The learning rate rises from a twentieth to its full size within a minute, and steps with it."""
    warm = 0.05 + 0.95 * ramp(since_s, 60)
    steps = ("learning_rate", "kl_divergence", "kl_joint", "kl_max", "clip_fraction")
    return replace(now, times={**now.times, **dict.fromkeys(steps, warm)})


def taking_off(now: Conditions, since_s: float) -> Conditions:
    """After a minute without success returns rise, and steps, gradients and the critic's loss with them."""
    lift = ramp(max(0.0, since_s - 60), 60)
    grown = {
        "kl_divergence": 0.3 + 0.9 * lift, "clip_fraction": 0.2 + 1.2 * lift, "grad_norm": 0.5 + 4.5 * lift,
        "value_loss": 0.3 + 3.0 * lift,
    }  # fmt: skip
    return replace(now, times={**now.times, **grown}, misery=max(now.misery, 1 - lift))


def grpo(now: Conditions, since_s: float) -> Conditions:
    """A language model that learns without a critic: tiny steps that grow, small gradients, more reward."""
    done = ramp(since_s, 150)
    grown = {
        "kl_divergence": 0.03 + 0.3 * done, "kl_joint": 0.03 + 0.3 * done, "clip_fraction": 0.02 + 0.2 * done,
        "grad_norm": 0.05 + 0.2 * done, "entropy": 1 - 0.4 * done, "learning_rate": 0.003,
    }  # fmt: skip
    without = now.absent | {"explained_variance", "value_loss"}
    return replace(
        now, times={**now.times, **grown}, absent=without, misery=max(now.misery, 0.8 * (1 - done))
    )


def reward_hacking(now: Conditions, since_s: float) -> Conditions:
    """The policy is paid by a proxy: both returns rise for a moment, then it games the proxy."""
    return replace(now, paid_s=since_s)


POLICY_FAULTS: Final[dict[str, Fault]] = {
    "kl-spike": kl_spike,
    "kl-high": _times(kl_divergence=3.5),
    "clip-high": _times(clip_fraction=4.0),
    "steps-too-large": _times(kl_divergence=6.0, clip_fraction=4.0),
    "entropy-collapse": _times(entropy=0.08),
    "gradient-explosion": _times(grad_norm=15.0),
    "critic-failure": critic_failure,
    "ratio-explosion": _times(ratio_max=8.0),
    "ratio-collapse": _times(ratio_min=0.05),
    "sampler-mismatch": _times(first_ratio_error=20_000.0),
    "updates-slow": _times(update_time=3.0),
    "policy-frozen": policy_frozen,
    "critic-diverged": critic_diverged,
    "silent-collapse": silent_collapse,
    "gradient-spikes": gradient_spikes,
    "zero-gradients": _becomes(grad_norm=0.0),
    "learning-rate-zero": _becomes(learning_rate=0.0),
    "early-explosion": _becomes(kl_divergence=700.0, clip_fraction=8.0, grad_norm=300.0),
    "silent-nan": silent_nan,
    "kl-creep": _creeps(kl_divergence=0.02),
    "clip-creep": _creeps(clip_fraction=0.02),
    "explained-variance-creep": explained_variance_creeps,
    "returns-creep": returns_creep,
    "reward-hacking": reward_hacking,
    "names-flood": names_flood,
    "noisy-updates": noisy_updates,
    "early-stops": early_stops,
    "solved": solved,
    "sparse-rewards": sparse_rewards,
    "learning-rate-drop": learning_rate_drop,
    "measured-early": _becomes(**_STILL),
    "learning-rate-warm-up": warming_up,
    "take-off": taking_off,
    "grpo": grpo,
}

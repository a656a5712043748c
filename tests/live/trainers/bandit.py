"""PPO on a contextual bandit in NumPy: a table of logits, a table of values, plain gradient ascent.

A third of what is paid depends on the context, the rest on the arm. Every number that it reports is what it
worked out to learn by; a fault changes what it is paid or how it learns, never what it reports.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.live.trainers.reporting import reporting

Array = npt.NDArray[np.float64]
CONTEXTS, ARMS, BATCH = 4, 4, 256
FAULTS = (
    "none", "worthless", "noise", "noisy", "louder", "rare", "shuffled", "infinite", "masked", "tilted",
    "outliers", "hot", "detached", "runaway", "proxy", "names", "stopped",
)  # fmt: skip


@dataclass
class Policy:
    """Logits and values of each context."""

    logits: Array = field(default_factory=lambda: np.zeros((CONTEXTS, ARMS)))
    values: Array = field(default_factory=lambda: np.zeros(CONTEXTS))

    apart: float = 0.0
    """By how much the logit of one arm is lower where it learns than where it acts."""

    def log_probs(self, *, acts: bool = False) -> Array:
        """CONTEXTS x ARMS."""
        logits = self.logits.copy()
        if not acts:
            logits[0, 3] -= self.apart
        shifted = logits - logits.max(axis=1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return found


@dataclass
class Batch:
    """What one rollout collected."""

    contexts: npt.NDArray[np.int64]
    actions: npt.NDArray[np.int64]
    log_probs: Array
    rewards: Array
    truth: Array


def collect(policy: Policy, chance: np.random.Generator, fault: str, age: int) -> Batch:
    """Act by the policy, and be paid; `age` counts updates since the fault began."""
    acting = policy.log_probs(acts=True)
    contexts = chance.integers(CONTEXTS, size=BATCH)
    probs = np.exp(acting)[contexts]
    drawn = (probs / probs.sum(axis=1, keepdims=True)).cumsum(axis=1)
    actions = (chance.random((BATCH, 1)) > drawn).sum(axis=1).clip(0, ARMS - 1)
    right = (actions == contexts).astype(float)
    rewards = right + 0.5 * contexts / CONTEXTS + chance.normal(0.0, 0.1, BATCH)
    truth = rewards.copy()
    match fault:
        case "worthless":
            rewards -= right
        case "noise":
            rewards = chance.normal(0.0, 1.0, BATCH)
        case "noisy":
            rewards += chance.normal(0.0, 1.5, BATCH)
        case "louder":
            rewards += chance.normal(0.0, 10.0, BATCH)
        case "infinite" if age % 5 < 3:
            rewards[0] = np.inf
        case "rare":
            rewards += 3.0 * (actions == age // 4 % ARMS)
        case "shuffled":
            rewards = right + 0.5 * (CONTEXTS - contexts)
        case "outliers" if age % 12 == 0:
            rewards[:2] += 300.0
        case "proxy":
            # Arm 0 looks good and is not.
            rewards, truth = rewards + 2.0 * (actions == 0), truth - 2.0 * (actions == 0)
        case _:
            pass
    return Batch(contexts, actions, acting[contexts, actions], rewards, truth)


def learn(
    policy: Policy, batch: Batch, flags: argparse.Namespace, rates: tuple[float, float]
) -> dict[str, float]:
    """Several epochs of gradient ascent on the clipped surrogate, then the critic; what they were like."""
    advantages = batch.rewards - policy.values[batch.contexts]
    if flags.normalise:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    if flags.fault == "detached":
        advantages = np.zeros_like(advantages)
    norms, first = [], 0.0
    for epoch in range(4):
        log_probs = policy.log_probs()
        ratio = np.exp(np.clip(log_probs[batch.contexts, batch.actions] - batch.log_probs, -20, 20))
        first = float(np.abs(ratio - 1).max()) if epoch == 0 else first
        clipped = ((ratio > 1.2) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))
        weights = np.where(clipped, 0.0, ratio * advantages) / BATCH
        gradient = np.zeros_like(policy.logits)
        np.add.at(gradient, (batch.contexts, batch.actions), weights)
        np.subtract.at(gradient, batch.contexts, weights[:, None] * np.exp(log_probs[batch.contexts]))
        if flags.fault != "detached":
            entropy = -(np.exp(log_probs) * log_probs).sum(axis=1, keepdims=True)
            gradient -= flags.entropy * np.exp(log_probs) * (log_probs + entropy) / CONTEXTS
        norms.append(float(np.linalg.norm(gradient)))
        if np.isfinite(gradient).all():
            policy.logits += rates[0] * gradient
    values = policy.values[batch.contexts]
    for context in range(CONTEXTS):
        seen = batch.rewards[batch.contexts == context]
        seen = seen[np.isfinite(seen)]
        policy.values[context] += rates[1] * (seen.mean() - policy.values[context]) if seen.size else 0.0
    finite = [norm for norm in norms if np.isfinite(norm)]
    return moved(policy, batch) | {
        "grad_norm": float(np.mean(finite)) if finite else 0.0,
        "grad_nan": float(np.isnan(gradient).sum()),
        "grad_inf": float(np.isinf(gradient).sum()),
        "first_ratio_error": first,
        "explained_variance": float(1 - np.var(batch.rewards - values) / np.var(batch.rewards)),
        "value_loss": float(np.mean((batch.rewards - values) ** 2)),
    }  # fmt: skip


def moved(policy: Policy, batch: Batch) -> dict[str, float]:
    """How far the update moved the policy."""
    log_probs = policy.log_probs()
    log_ratio = log_probs[batch.contexts, batch.actions] - batch.log_probs
    within = np.clip(log_ratio, -20, 20)
    ratio = np.exp(within)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=1).mean() / np.log(ARMS)
    return {
        "kl_divergence": float((np.expm1(within) - within).mean()),
        "kl_k1": float(-log_ratio.mean()),
        "clip_fraction": float((np.abs(ratio - 1) > 0.2).mean()),
        "ratio_max": float(ratio.max()),
        "ratio_min": float(ratio.min()),
        "log_ratio_clamped": float((np.abs(log_ratio) > 20).mean()),
        "entropy": float(entropy),
    }


def parsed() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--updates", type=int, default=80)
    parser.add_argument("--pace", type=float, default=0.12, help="seconds of an update")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--critic-lr", type=float, default=0.3)
    parser.add_argument("--entropy", type=float, default=0.5, help="weight of the entropy bonus")
    parser.add_argument("--target-kl", type=float, help="declared, and limits nothing")
    parser.add_argument("--anneal", type=int, default=0, help="updates until the rate is 0")
    parser.add_argument("--preset", default="ppo")
    parser.add_argument("--only", default=("",), type=lambda words: tuple(words.split(",")), help="rows sent")
    parser.add_argument("--raw", dest="normalise", action="store_false", help="leave advantages as they are")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--at", type=int, default=50, help="update from which on the fault is there")
    return parser.parse_args()


def train(flags: argparse.Namespace, report: Callable[[int, dict[str, float]], None]) -> None:
    """All updates."""
    policy, chance = Policy(), np.random.default_rng(1)
    for update in range(1, flags.updates + 1):
        began = time.perf_counter()
        age = update - flags.at
        fault = flags.fault if age >= 0 else "none"
        batch = collect(policy, chance, fault, age)
        rate = flags.lr * max(0.0, 1 - (update - 1) / flags.anneal) if flags.anneal else flags.lr
        rate *= 100.0 if fault == "hot" else 1.0
        critic = {"runaway": 2.3, "shuffled": 0.0}.get(fault, flags.critic_lr)
        policy.apart = {"masked": 40.0, "tilted": 2.2}.get(fault, 0.0)
        reported = learn(policy, batch, flags, (rate, critic))
        reported = {name: value for name, value in reported.items() if name.startswith(flags.only)}
        if flags.fault == "proxy":
            reported |= {
                "proxy_return": float(batch.rewards.mean()),
                "true_return": float(batch.truth.mean()),
            }
        if fault == "names":
            reported |= {
                f"loss_of_batch_{update}_{part}": float(batch.rewards[part]) for part in range(BATCH)
            }
        if fault == "stopped" and age == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        report(update, {"return_": float(batch.rewards.mean()), "learning_rate": rate} | reported)
        time.sleep(max(0.0, flags.pace - (time.perf_counter() - began)))


def main() -> None:
    """Train, and report."""
    flags = parsed()
    config = {"lr": flags.lr} | ({} if flags.target_kl is None else {"target_kl": flags.target_kl})
    run_of = reporting(
        run_id=flags.run_id,
        task="bandit",
        algo="ppo",
        preset=flags.preset,
        config=config,
        endpoint=flags.endpoint,
        updates=flags.updates,
        sample=False,
    )
    with run_of as run, np.errstate(all="ignore"):
        train(flags, lambda update, reported: run.update(update=update, **reported))


if __name__ == "__main__":
    main()

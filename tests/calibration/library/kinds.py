"""The kinds of training in the library: what is done to which algorithms, and what a strict finding of it is.

One row a kind. A strict finding names the cause, or the signal that is off, at least so severe, after the
fault began. The rows were written before any run was judged.
"""

from dataclasses import dataclass
from typing import Final

from tests.calibration.library.drawing import share
from tests.calibration.library.series import Case

ON_POLICY: Final = ("ppo", "a2c", "recurrent-ppo", "maskable-ppo", "cleanrl-ppo", "our-ppo")
CLIPPED: Final = ("ppo", "maskable-ppo", "recurrent-ppo", "cleanrl-ppo", "our-ppo")
THEIRS: Final = tuple(one for one in ON_POLICY if one != "our-ppo")
Q: Final = ("dqn", "cleanrl-dqn")
ACTOR_CRITIC: Final = ("sac", "td3")
GRPO: Final = ("our-grpo", "trl-grpo")
SB3: Final = ("ppo", "a2c", "dqn", "sac", "td3", "recurrent-ppo", "maskable-ppo")
IN_ENVS: Final = (*SB3, "cleanrl-ppo", "cleanrl-dqn", "our-ppo")
"""Whose envs are Gymnasium's, so that faults of envs reach them."""
ALL: Final = (*IN_ENVS, *GRPO)

STEPS: Final = (
    "policy-kl-divergence", "kl-spike", "steps-too-large", "policy-clip-fraction", "policy-ratio-max",
    "policy-ratio-min", "policy-kl-k1", "update-shock", "policy-log-ratio-clamped", "trust-region-burn",
)  # fmt: skip
COLLAPSED: Final = ("policy-collapse", "policy-entropy", "policy-frozen")
STILL: Final = ("policy-frozen", "zero-gradients", "learning-rate-zero", "policy-layers-dead")
CRITIC: Final = (
    "critic-failing", "critic-diverged", "policy-explained-variance", "policy-value-loss", "loss-diverged",
    "policy-td-error-mean", "policy-bellman-error", "policy-value-max", "policy-value-spread",
    "policy-value-std",
)  # fmt: skip
ADVANTAGES: Final = ("policy-advantage-std", "policy-advantage-mean", "policy-groups-alike")
GRADIENTS: Final = ("policy-grad-norm", "gradient-spikes")
RETURN: Final = ("reward-collapse", "slow-drift:return", "reward-hacking", "policy-success-rate")
NOT_FINITE: Final = ("non-finite", "policy-grad-nan", "policy-grad-inf", "env-non-finite", "run-failed")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is done to a training."""

    name: str
    did: str
    algorithms: tuple[str, ...]
    runs: int = 4
    """Of each half."""
    findings: tuple[str, ...] = ()
    """Any of which is strict; with `code:row`, that finding of that row. None of a healthy kind."""
    least: str = "warning"
    midway: float = 0.5
    """Share of the runs in which it begins at a drawn moment of the middle of the training, not with it."""
    worlds: tuple[str, ...] = ()
    """Where it matters; everywhere where there are none."""

    @property
    def is_broken(self) -> bool:
        """Whether something is wrong with its runs."""
        return bool(self.findings)


HEALTHY: Final = (
    Kind(name="zoo", did="settings of a zoo, small changes of batch and rate", algorithms=ALL, runs=18),
    Kind(name="schedule", did="rate and clip fall to their end", algorithms=IN_ENVS, runs=5),
    Kind(name="warm-restarts", did="the rate falls as a cosine and starts again", algorithms=IN_ENVS, runs=6),
    Kind(name="large-batch", did="four times the batch", algorithms=IN_ENVS, runs=4),
    Kind(name="small-batch", did="a quarter of the batch", algorithms=IN_ENVS, runs=4),
    Kind(
        name="accumulation",
        did="gradients of 2 or 4 minibatches a step",
        algorithms=(*SB3, "cleanrl-ppo"),
        runs=4,
    ),
    Kind(
        name="skipped-steps",
        did="optimiser steps skipped as by a loss scaler",
        algorithms=(*SB3, "cleanrl-ppo"),
        runs=4,
    ),
    Kind(name="normaliser", did="observations and rewards are normalised", algorithms=SB3, runs=4),
    Kind(
        name="curriculum",
        did="five harder stages, announced",
        algorithms=("ppo", "a2c", "dqn", "maskable-ppo"),
        runs=5,
        worlds=("cartpole", "bricks"),
    ),
    Kind(
        name="evaluations",
        did="evaluations between the updates",
        algorithms=tuple(a for a in SB3 if a != "maskable-ppo"),
        runs=5,
    ),
    Kind(name="checkpoints", did="checkpoints that take seconds, announced", algorithms=SB3, runs=4),
    Kind(name="pauses", did="pauses of seconds, announced", algorithms=SB3, runs=5),
    Kind(name="two-ranks", did="two ranks with envs of their own", algorithms=("cleanrl-ppo",), runs=2),
    Kind(name="slow-learner", did="a tenth to a third of the rate", algorithms=ALL, runs=6),
)
BROKEN: Final = (
    Kind(
        name="rate-x10",
        did="rate × 8 … 30",
        algorithms=ALL,
        runs=5,
        findings=(*STEPS, *COLLAPSED, *CRITIC, *GRADIENTS, *RETURN),
    ),
    Kind(
        name="rate-x100",
        did="rate × 60 … 300",
        algorithms=ALL,
        runs=5,
        findings=(*STEPS, *COLLAPSED, *CRITIC, *GRADIENTS, *RETURN, *NOT_FINITE),
    ),
    Kind(
        name="rate-x1000",
        did="rate × 700 … 3,000",
        algorithms=ALL,
        runs=6,
        least="critical",
        findings=(*STEPS, *COLLAPSED, *CRITIC, *GRADIENTS, *RETURN, *NOT_FINITE),
    ),
    Kind(
        name="rate-0",
        did="the rate reaches 0 early",
        algorithms=IN_ENVS,
        findings=("learning-rate-zero", *STILL),
        midway=1.0,
    ),
    Kind(
        name="no-entropy",
        did="entropy coefficient 0 where the reward is sparse",
        algorithms=ON_POLICY,
        runs=3,
        worlds=("grid", "mountaincar"),
        findings=(*COLLAPSED, *RETURN, "policy-explained-variance", "critic-failing"),
        midway=0.0,
    ),
    Kind(
        name="entropy-bonus",
        did="entropy bonus 0.5 … 10",
        algorithms=(*ON_POLICY, "sac"),
        findings=("entropy-explosion", "policy-entropy", *RETURN),
    ),
    Kind(
        name="clip-5",
        did="clip 5, 20 epochs, no target",
        algorithms=CLIPPED,
        findings=(*STEPS, *COLLAPSED, *RETURN),
    ),
    Kind(
        name="epochs-40",
        did="40 epochs, no target",
        algorithms=CLIPPED,
        findings=(*STEPS, *COLLAPSED, *RETURN),
    ),
    Kind(
        name="raw-advantages",
        did="advantages as they are",
        algorithms=("ppo", "maskable-ppo", "recurrent-ppo", "cleanrl-ppo"),
        runs=3,
        findings=(
            "policy-advantage-std",
            "policy-advantage-mean",
            *GRADIENTS,
            *STEPS,
            *COLLAPSED,
            *RETURN,
            *CRITIC,
        ),
    ),
    Kind(name="no-value-loss", did="weight of the value loss 0", algorithms=ON_POLICY, findings=CRITIC),
    Kind(name="discount-0", did="discount 0", algorithms=IN_ENVS, findings=(*RETURN, *CRITIC, *COLLAPSED)),
    Kind(
        name="unclipped",
        did="no clipping of gradients, rate × 20 … 100",
        algorithms=(*ON_POLICY, "dqn"),
        findings=(*GRADIENTS, *STEPS, *COLLAPSED, *CRITIC, *RETURN),
    ),
    Kind(
        name="frozen-actor",
        did="the optimiser holds a copy of the policy",
        algorithms=IN_ENVS,
        findings=(*STILL, *RETURN),
        least="critical",
    ),
    Kind(
        name="frozen-critic",
        did="the critic is not trained",
        algorithms=(*THEIRS, *ACTOR_CRITIC),
        findings=(*CRITIC, *STILL, *RETURN),
    ),
    Kind(
        name="dead-relu",
        did="no hidden unit of the policy is ever active",
        algorithms=IN_ENVS,
        findings=(*STILL, *COLLAPSED, *RETURN),
        least="critical",
    ),
    Kind(
        name="blown-weights",
        did="the policy's weights × 10 … 100",
        algorithms=IN_ENVS,
        findings=(*STEPS, *COLLAPSED, *CRITIC, *RETURN, *GRADIENTS),
    ),
    Kind(
        name="nan-weights",
        did="a NaN among the weights",
        algorithms=ALL,
        findings=NOT_FINITE,
        least="critical",
        midway=1.0,
    ),
    Kind(
        name="stale-normaliser",
        did="statistics of observations from elsewhere, as of a wrong file at a resume",
        algorithms=SB3,
        findings=(
            "policy-observation-drift",
            "policy-observation-outliers",
            *RETURN,
            *COLLAPSED,
            *CRITIC,
            *STEPS,
        ),
        midway=1.0,
    ),
    Kind(
        name="reward-huge",
        did="reward × 1e6",
        algorithms=IN_ENVS,
        findings=(*CRITIC, *GRADIENTS, "policy-advantage-std", *COLLAPSED, *STEPS),
    ),
    Kind(
        name="reward-flipped",
        did="the reward's sign is wrong",
        algorithms=IN_ENVS,
        findings=(*RETURN, *COLLAPSED, *CRITIC),
    ),
    Kind(
        name="reward-constant",
        did="the reward model pays nothing any more",
        algorithms=IN_ENVS,
        findings=(*RETURN, *CRITIC, *STILL, "env-degraded"),
    ),
    Kind(
        name="reward-nan",
        did="a reward is NaN from then on",
        algorithms=IN_ENVS,
        findings=NOT_FINITE,
        least="critical",
    ),
    Kind(
        name="ends-as-cuts",
        did="ends reported as cuts, so that values go on behind them",
        algorithms=IN_ENVS,
        findings=(*CRITIC, *RETURN, "policy-timeout-rate"),
        midway=0.3,
    ),
    Kind(
        name="observation-late",
        did="observations 1 … 8 steps late",
        algorithms=IN_ENVS,
        runs=5,
        findings=(*RETURN, *CRITIC, *COLLAPSED, "policy-observation-drift"),
    ),
    Kind(
        name="observation-dead",
        did="observations are all 0",
        algorithms=IN_ENVS,
        findings=(*RETURN, *CRITIC, *COLLAPSED, "policy-observation-drift"),
    ),
    Kind(
        name="observation-scaled",
        did="observations × 1,000",
        algorithms=IN_ENVS,
        findings=(
            "policy-observation-drift",
            "policy-observation-outliers",
            *RETURN,
            *CRITIC,
            *COLLAPSED,
            *STEPS,
            *GRADIENTS,
        ),
    ),
    Kind(
        name="actions-swapped",
        did="actions change places",
        algorithms=IN_ENVS,
        findings=(*RETURN, *CRITIC, *STEPS),
        midway=1.0,
    ),
    Kind(
        name="resets-at-once",
        did="envs end at every step",
        algorithms=IN_ENVS,
        runs=5,
        findings=(*RETURN, "env-degraded", "env-crashed"),
    ),
    Kind(
        name="env-dies",
        did="an env raises",
        algorithms=IN_ENVS,
        runs=3,
        findings=("run-failed", "env-crashed", "crash-storm"),
        least="critical",
        midway=1.0,
    ),
    Kind(
        name="env-stuck",
        did="an env stays where it is and never ends",
        algorithms=tuple(a for a in IN_ENVS if a not in ("sac", "td3")),
        runs=4,
        findings=("env-degraded", "env-stalled", *RETURN),
    ),
    Kind(
        name="env-slow",
        did="an env takes 10 … 50 ms a step",
        algorithms=("ppo", "a2c", "recurrent-ppo", "cleanrl-ppo", "sac"),
        runs=3,
        findings=("throughput-regression", "env-stalled", "env-degraded", "policy-update-time", "straggler"),
        midway=1.0,
    ),
    Kind(
        name="eval-falls",
        did="what is paid is the opposite of what is evaluated",
        algorithms=tuple(a for a in SB3 if a != "maskable-ppo"),
        runs=4,
        findings=RETURN,
        midway=1.0,
    ),
    Kind(
        name="one-transition",
        did="a replay buffer of one transition",
        algorithms=("dqn", "sac", "td3", "cleanrl-dqn"),
        findings=(*CRITIC, *RETURN, *COLLAPSED),
        midway=0.0,
    ),
    Kind(
        name="no-target-updates",
        did="the target network stays",
        algorithms=("dqn", "sac", "td3", "cleanrl-dqn"),
        findings=(*CRITIC, *RETURN),
        midway=0.3,
    ),
    Kind(
        name="epsilon-1",
        did="every action is drawn at random",
        algorithms=Q,
        runs=3,
        findings=(*RETURN, "policy-entropy"),
        midway=0.3,
    ),
    Kind(
        name="repeated-rank",
        did="the second of two ranks learns from one rollout again and again",
        algorithms=("cleanrl-ppo",),
        runs=3,
        findings=("rank-diverged", "slow-drift:rank 1"),
    ),
    Kind(
        name="reward-saturated",
        did="the reward model pays all answers alike",
        algorithms=GRPO,
        findings=("policy-groups-alike", "policy-advantage-std", *STILL, *RETURN),
        midway=0.5,
    ),
    Kind(
        name="length-hacked",
        did="longer answers are paid more",
        algorithms=GRPO,
        findings=("reward-hacking", "policy-answers-cut", "slow-drift", *RETURN),
    ),
    Kind(
        name="sampler-mismatch",
        did="log-probabilities of another temperature",
        algorithms=("our-grpo",),
        runs=3,
        findings=(
            "policy-token-error",
            "policy-sampler-kl",
            "policy-sampler-ess",
            "policy-sampler-weight",
            "policy-first-ratio-error",
        ),
    ),
    Kind(
        name="stale-samplers",
        did="samplers keep their weights and stamp the newest version",
        algorithms=("our-grpo",),
        runs=3,
        findings=(
            "policy-token-error",
            "policy-sampler-kl",
            "policy-sampler-ess",
            "policy-sampler-weight",
            "policy-first-ratio-error",
            "actor-stale",
            "weights-old",
        ),
    ),
    Kind(
        name="no-noise", did="no noise in actions", algorithms=("td3",), runs=2, findings=RETURN, midway=0.0
    ),
    Kind(
        name="noise-large",
        did="noise of actions larger than their range",
        algorithms=("td3",),
        runs=2,
        findings=RETURN,
    ),
)
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in (*HEALTHY, *BROKEN)}

OF_ENV: Final = frozenset(
    {
        "reward-huge", "reward-flipped", "reward-constant", "reward-nan", "ends-as-cuts", "observation-late",
        "observation-dead", "observation-scaled", "actions-swapped", "resets-at-once",
        "env-dies", "env-stuck", "env-slow",
    }
)  # fmt: skip
"""Kinds of which the fault lies in Gymnasium's envs."""
OF_GYM: Final = ("cartpole", "acrobot", "mountaincar", "pendulum", "lunarlander", "grid", "bricks", "point")
WORLDS_OF: Final[dict[str, tuple[str, ...]]] = {
    "ppo": ("cartpole", "acrobot", "pendulum", "lunarlander", "grid", "bricks", "mountaincar"),
    "a2c": ("cartpole", "grid", "bricks"),
    "dqn": ("cartpole", "acrobot", "mountaincar", "grid", "bricks"),
    "sac": ("pendulum", "point"),
    "td3": ("pendulum", "point"),
    "recurrent-ppo": ("cartpole", "grid"),
    "maskable-ppo": ("grid", "bricks"),
    "cleanrl-ppo": ("cartpole", "acrobot", "grid", "bricks"),
    "cleanrl-dqn": ("cartpole", "grid", "bricks"),
    "our-ppo": ("cartpole", "goodhart", "morphogenesis", "bricks"),
    "our-grpo": ("digits",),
    "trl-grpo": ("letters",),
}


def plan(half: str, root: str) -> list[Case]:
    """The cases of a half; `root` is what its seeds are drawn from. In an order that mixes the kinds."""
    cases = [case for kind in KINDS.values() for case in _of(kind, f"{half}\n{root}")]
    return sorted(cases, key=lambda case: share(case.name, root))


def _fits(kind: Kind, world: str) -> bool:
    return (world in OF_GYM or kind.name not in OF_ENV) and (world in kind.worlds or not kind.worlds)


def _of(kind: Kind, root: str) -> list[Case]:
    """A kind's cases: its algorithms in turn, each in worlds of its own in turn."""
    turns = {
        algorithm: sorted(worlds, key=lambda world: share(root, kind.name, algorithm, world))
        for algorithm in kind.algorithms
        if (worlds := [one for one in WORLDS_OF[algorithm] if _fits(kind, one)])
    }
    order = sorted(turns, key=lambda algorithm: share(root, kind.name, algorithm))
    cases = []
    for number in range(kind.runs):
        algorithm, turn = order[number % len(order)], number // len(order)
        worlds = turns[algorithm]
        seed = f"{int(share(root, kind.name, algorithm, str(turn)) * (1 << 32)):08x}"
        world = worlds[turn % len(worlds)]
        cases.append(Case(kind=kind.name, algorithm=algorithm, world=world, seed=seed))
    return cases

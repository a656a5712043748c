"""The flight learns: a trained policy against its own beginning, chance, waiting and a fixed schedule.

All policies play the same 32 held-out episodes, so differences are taken episode by episode. A learning rate
that is far too high is seen in the KL.
"""

import sys
import time
from dataclasses import dataclass, replace

import pytest
import torch

from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.config import PRESETS
from overwatch_rl.trained import player
from overwatch_rl.training.trainer import TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import Played, baselines, play
from tests.overwatch_rl.kept import Kept, trainer, weights

EPISODES = 32
HELD_OUT = 1_000_003
PRESET = PRESETS["morphogenesis"].learned
HEALTHY = PRESET.learning_rate
BEATEN = ("initial", "random", "always-wait")
"""What a trained policy must beat; it is only compared with the schedule."""


@dataclass(frozen=True)
class Learned:
    """One seed: how it trained and what its policy is worth."""

    curve: Kept
    seconds: float
    played: dict[str, Played]

    def lead(self, over: str) -> tuple[float, float]:
        """Mean difference of the trained policy's returns over another's, and its standard error."""
        return lead([self], over)


def lead(runs: list[Learned], over: str) -> tuple[float, float]:
    """Difference of returns, episode by episode, pooled over runs: mean and standard error."""
    pairs = [run.played["trained"].returns - run.played[over].returns for run in runs]
    difference = torch.cat(pairs)
    return float(difference.mean()), float(difference.std() / len(difference) ** 0.5)


def learn(seed: int, *, envs: int, updates: int, is_greedy: bool = True) -> Learned:
    """Train one seed with the preset and play the held-out episodes, everything frozen.

    A short training is judged by what it draws, as its beginning is; a whole one by its likeliest actions.
    """
    began = time.perf_counter()
    made, algorithm, curve = trainer(TrainerConfig(updates=updates, seed=seed), PRESET, envs=envs, slots=3)
    held_out = make("morphogenesis", WorldConfig(num_envs=EPISODES), {"slots": 3})
    initial = PPO(held_out.spec, algorithm.config, seed=seed)
    initial.load_state_dict(weights(algorithm))
    made.run()
    seconds = time.perf_counter() - began
    acts = {
        "trained": player(algorithm, None if is_greedy else torch.Generator().manual_seed(seed)),
        "initial": player(initial, torch.Generator().manual_seed(seed)),
        **baselines(held_out.spec.action, torch.Generator().manual_seed(seed + 1)),
    }
    played = {name: play(held_out, act, HELD_OUT + seed) for name, act in acts.items()}
    return Learned(curve, seconds, played)


def table(runs: list[Learned]) -> str:
    """The figures of all runs, a line a policy, then the pooled differences."""
    lines = ["", f"{'policy':12} {'return':>15} {'accuracy':>8} {'fossils':>7}"]
    for number, run in enumerate(runs):
        lines.append(f"seed {number}: {run.seconds:.0f} s")
        lines += [
            f"{name:12} {played.mean:7.3f} ± {played.standard_error:.3f} {float(played.metric.mean()):8.3f} "
            f"{float(played.fossils.double().mean()):7.2f}"
            for name, played in run.played.items()
        ]
    for name in (*BEATEN, "schedule"):
        mean, error = lead(runs, name)
        lines.append(f"trained − {name:12} {mean:+.3f} ± {error:.3f}  ({mean / error:.1f} standard errors)")
    return "\n".join(lines) + "\n"


@pytest.mark.sampled(1, of="a policy that learns")
def test_a_short_training_beats_chance_and_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    """One seed with half the envs and updates: more than two standard errors above each, and fossils."""
    run = learn(0, envs=16, updates=15, is_greedy=False)
    with capsys.disabled():
        sys.stdout.write(table([run]))

    for name in BEATEN:
        mean, error = run.lead(name)
        assert mean > 2 * error, name
    assert float(run.played["trained"].fossils.double().mean()) > 0.5
    assert len({update["kl_divergence"] for update in run.curve.updates}) == len(run.curve.updates)


def test_a_learning_rate_times_thirty_is_seen_in_the_kl() -> None:
    """Within three updates KL is above 0.03, where the healthy rate stays below."""
    kls = {}
    for factor in (1, 30):
        ppo = replace(PRESET, learning_rate=HEALTHY * factor)
        made, _, curve = trainer(TrainerConfig(updates=3), ppo, envs=16, slots=3)
        made.run()
        kls[factor] = [update["kl_divergence"] for update in curve.updates]

    assert max(kls[30]) > 0.03
    assert max(kls[1]) < 0.03


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_five_seeds_learn(capsys: pytest.CaptureFixture[str]) -> None:
    """The preset over five seeds, pooled: above each by two standard errors; every seed fossilises."""
    runs = [learn(seed, envs=32, updates=30) for seed in range(5)]
    with capsys.disabled():
        sys.stdout.write(table(runs))

    for name in (*BEATEN, "schedule"):
        mean, error = lead(runs, name)
        assert mean > 2 * error, name
    for run in runs:
        assert float(run.played["trained"].fossils.double().mean()) > 0.5
        last, first = run.curve.mean("return", slice(-6, None)), run.curve.mean("return", slice(6))
        assert last > first
        assert all(run.lead(name)[0] > 0 for name in BEATEN)

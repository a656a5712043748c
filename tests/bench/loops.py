"""Whole loops of PPO on CartPole-v1 by one recipe: ours, SB3's, RLlib's, and one in PureJaxRL's style.

Steps for each CPU second of the process that trains, printed whatever they show. JAX and Ray run in a Python
of their own, made here once; where it cannot be made, or one fails, the reason is printed in its place.

    python tests/bench/loops.py [--updates 30]
"""

import argparse
import json
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env

from overwatch_rl.algorithms.networks import HIDDEN
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.config import PRESETS
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.bench.sdk.stats import emit

PYTHON: Final = Path(__file__).parents[2] / "build/bench-peers/bin/python"
NEEDED: Final = ("jax==0.10.2", f"torch=={torch.__version__.partition('+')[0]}", "ray[rllib]==2.60.0")
PEERS: Final = ("jax_ppo", "rllib_ppo")
INSTALL_S: Final = 900
RUN_S: Final = 600
PRESET: Final = PRESETS["gym"]


@dataclass(frozen=True)
class Loop:
    """What one of them did."""

    name: str
    steps: int
    cpu_s: float
    note: str = ""

    @property
    def rate(self) -> float:
        """Steps for each CPU second."""
        return self.steps / self.cpu_s


def main(arguments: list[str]) -> None:
    """Run all of them, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=30)
    updates = parser.parse_args(arguments).updates
    torch.set_num_threads(1)
    ours = _ours(updates)
    emit(f"== whole loops on CartPole-v1, {PRESET.envs} envs x {PRESET.steps} steps, {updates} updates")
    for found in (ours, _sb3(updates), *_apart(updates)):
        if isinstance(found, str):
            emit(f"  {found}")
        else:
            beside = f"{found.rate / ours.rate:6.2f}x ours"
            emit(f"  {found.name:36} {found.rate:10,.0f} steps a CPU second {beside}  {found.note}")


def _ours(updates: int) -> Loop:
    world = make("gym:CartPole-v1", WorldConfig(num_envs=PRESET.envs), {})
    config = TrainerConfig(updates=updates, steps=PRESET.steps)
    trainer = Trainer(world, PPO(world.spec, PRESET.learned, seed=0), config, Silent(), lambda: None)
    began = time.process_time()
    trainer.run()
    return Loop("ours", trainer.collector.steps_done * PRESET.envs, time.process_time() - began)


def _sb3(updates: int) -> Loop:
    recipe, steps = PRESET.learned, updates * PRESET.envs * PRESET.steps
    model = stable_baselines3.PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=PRESET.envs, seed=0), n_steps=PRESET.steps,
        batch_size=PRESET.envs * PRESET.steps // recipe.minibatches, n_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate, gamma=recipe.gamma, gae_lambda=recipe.gae_lambda,
        clip_range=recipe.clip, ent_coef=recipe.entropy_coef, vf_coef=recipe.value_coef,
        max_grad_norm=recipe.max_grad_norm, seed=0, device="cpu",
        policy_kwargs={"net_arch": {"pi": [HIDDEN, HIDDEN], "vf": [HIDDEN, HIDDEN]}},
    )  # fmt: skip
    began = time.process_time()
    model.learn(steps)
    return Loop(f"SB3 {stable_baselines3.__version__}", steps, time.process_time() - began)


def _apart(updates: int) -> Iterator[Loop | str]:
    """Those in another Python; a reason for each that did not run."""
    failed = _installed()
    recipe = PRESET.learned
    same = ("clip", "minibatches", "epochs", "learning_rate", "value_coef", "entropy_coef", "max_grad_norm")
    words = json.dumps(
        {name: getattr(recipe, name) for name in same}
        | {
            "envs": PRESET.envs,
            "steps": PRESET.steps,
            "gamma": recipe.gamma,
            "lam": recipe.gae_lambda,
        }
    )
    for name in PEERS:
        if failed is not None:
            yield f"{name}: skipped, {failed}"
            continue
        file = Path(__file__).parent / "peers" / f"{name}.py"
        count = updates if name == "jax_ppo" else max(2, updates // 6)
        done = _run([str(PYTHON), str(file), words, str(count)], RUN_S)
        if isinstance(done, str):
            yield f"{name}: skipped, {done}"
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        once = f", {found['once_s']:.1f} s before to compile" if "once_s" in found else ""
        yield Loop(found["name"], found["steps"], found["cpu_s"], f"return {found['return']:.0f}{once}")


def _installed() -> str | None:
    """Make their Python where there is none; why there is none afterwards."""
    if PYTHON.exists() and isinstance(_run([str(PYTHON), "-c", "import jax, ray, torch"], RUN_S), _Done):
        return None
    emit(f"  installing {', '.join(NEEDED)} into {PYTHON.parents[1]}, some minutes")
    venv.create(PYTHON.parents[1], with_pip=True, clear=True)
    done = _run([str(PYTHON), "-m", "pip", "install", "--quiet", *NEEDED], INSTALL_S)
    return done if isinstance(done, str) else None


_Done = subprocess.CompletedProcess


def _run(command: list[str], limit_s: int) -> "subprocess.CompletedProcess[str] | str":
    """What it printed, or the last line of why it failed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s} s"
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]


if __name__ == "__main__":
    main(sys.argv[1:])

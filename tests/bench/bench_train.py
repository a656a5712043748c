"""What an update of PPO costs beside its peers, and what share of the loop is not the network.

All figures are CPU seconds of this process on one thread, of one minibatch of the seed's network (about four
million parameters, grids of 11 x 11 codes), interleaved in pairs; a ratio is the median of the pairs with the
least and the most. The plan is chosen as in a run, and held against the best of the whole grid measured here.
CleanRL's style is its loop typed again with the same network: eager fp32, Adam as it comes. SB3 has the same
layers as its extractor, and observations that are one-hot already. Prints, gates nothing.

    python tests/bench/bench_train.py [--rows 1024] [--pairs 5]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from overwatch_rl.algorithms.common import Batch, Plan
from overwatch_rl.algorithms.networks import Conv, Size
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.tower import Tower, TowerConfig, start_tower
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.training.warmup import choose, grid, words
from overwatch_rl.types import ObservationSpec, discrete
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.bench.sdk.host import Cores, Weather, about
from tests.bench.sdk.stats import Goals, emit
from tests.overwatch_rl.algorithms.small import ppo, rollout, world_spec

CODES = ObservationSpec(
    shape=(11, 11), dtype=torch.int8, codes=tuple(tuple(float(i == j) for j in range(6)) for i in range(6))
)
SPEC = world_spec(discrete(tuple("abcdefgh")), CODES)
ONCE = PPOConfig(network="conv", epochs=1, minibatches=1, popart=True, value_clip=0.2)
BUDGET_S = 20.0
STEPS = 16


def main(arguments: list[str]) -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1024, help="of a minibatch, a multiple of 16")
    parser.add_argument("--pairs", type=int, default=5)
    requested = parser.parse_args(arguments)
    torch.set_num_threads(1)
    goals, weather = Goals(), Weather()
    has_bf16 = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    emit(about(Cores()))
    emit(f"torch {torch.__version__}, SB3 {stable_baselines3.__version__}, AMX or AVX512-BF16: {has_bf16}")
    emit(f"{requested.rows} rows a minibatch, {requested.pairs} pairs; {weather.look()}")
    made = ppo(ONCE, spec=SPEC)
    rows = made.prepare(rollout(made, SPEC, steps=8, envs=requested.rows // 8))

    tuned = choose(made, rows, BUDGET_S, time.process_time)
    emit(f"\n== warm-up: {words(tuned.plan)} in {tuned.seconds:.1f} s")
    best = _grid(made, rows)
    ours = _update(made, rows, tuned.plan)
    for title, other, goal in (
        ("T1 the best of the grid", _update(made, rows, best), None),
        ("T2 CleanRL's style, eager fp32", _cleanrl(rows), 2.8 if has_bf16 else 1.0),
        ("T6 SB3, the same layers", _sb3(rows), 3.0 if has_bf16 else 1.0),
    ):
        ratios = _pairs(ours, other, requested.pairs)
        middle = statistics.median(ratios)
        emit(f"{title}: {middle:.2f}x ours ({min(ratios):.2f} to {max(ratios):.2f})")
        if goal is None:
            goals.most(f"{title}, ours over it", 1 / middle, 1.05)
        else:
            goals.least(title, middle, goal)
    elsewhere, telemetry = _elsewhere(tuned.plan, requested.rows)
    emit(f"T4 of the loop: not the network {elsewhere:.1%}, telemetry alone {telemetry:.2%}")
    goals.most("T4 what is not the network, goodhart and telemetry included", 100 * elsewhere, 6, " %")
    goals.most("T4 telemetry alone", 100 * telemetry, 1, " %")
    emit(f"after: {weather.look()}\n\n== goals")
    for line in goals.lines:
        emit(line)


def _cost(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _pairs(ours: Callable[[], object], other: Callable[[], object], pairs: int) -> list[float]:
    """How many times what ours costs the other costs, pair by pair after one round that does not count."""
    costs = [(_cost(ours), _cost(other)) for _ in range(pairs + 1)][1:]
    return [theirs / own for own, theirs in costs]


def _grid(made: PPO, rows: Batch) -> Plan:
    """The best plan by whole updates, twice each."""
    least: dict[Plan, float] = {}
    for plan in grid("cpu", len(rows), has_images=True):
        work = _update(made, rows, plan)
        least[plan] = min(_cost(work) for _ in range(2))
        emit(f"  {words(plan):36} {1e3 * least[plan]:9.1f} ms")
    return min(least, key=lambda plan: least[plan])


def _update(made: PPO, rows: Batch, plan: Plan) -> Callable[[], object]:
    twin = made.clone()
    twin.apply_plan(plan)
    return lambda: twin.update(rows)


def _cleanrl(rows: Batch) -> Callable[[], object]:
    """One minibatch of `ppo_atari.py`, with our network's layers."""
    agent = Conv(CODES, 8, torch.Generator().manual_seed(0), Size())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

    def update() -> None:
        outputs, values = agent(rows.features)
        probs = torch.distributions.Categorical(logits=outputs)
        log_ratio = probs.log_prob(rows.actions.squeeze(1)) - rows.log_probs.squeeze(1)
        ratio = log_ratio.exp()
        with torch.no_grad():
            ((ratio - 1) - log_ratio).mean()
            ((ratio - 1.0).abs() > 0.2).float().mean().item()
        ahead = (rows.advantages - rows.advantages.mean()) / (rows.advantages.std() + 1e-8)
        surrogate = torch.max(-ahead * ratio, -ahead * torch.clamp(ratio, 0.8, 1.2)).mean()
        near = rows.values + torch.clamp(values - rows.values, -0.2, 0.2)
        squared = torch.max((values - rows.returns) ** 2, (near - rows.returns) ** 2)
        total = surrogate - 0.01 * probs.entropy().mean() + 0.5 * 0.5 * squared.mean()
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()

    return update


class _Layers(BaseFeaturesExtractor):
    """The body of our network."""

    def __init__(self, space: gymnasium.Space[np.ndarray]) -> None:
        super().__init__(space, 512)
        made = Conv(ObservationSpec(shape=(6, 11, 11)), 8, torch.Generator().manual_seed(0), Size())
        self.body = made.body

    def forward(self, seen: Tensor) -> Tensor:
        """B 512."""
        return self.body(seen)


class _Grid(gymnasium.Env[np.ndarray, np.int64]):
    """Spaces alone."""

    observation_space = spaces.Box(0.0, 1.0, (6, 11, 11), np.float32)
    action_space = spaces.Discrete(8)


def _sb3(rows: Batch) -> Callable[[], object]:
    """`train` of one epoch and one minibatch."""
    theirs = stable_baselines3.PPO(
        "MlpPolicy", _Grid(), n_steps=len(rows), batch_size=len(rows), n_epochs=1, device="cpu",
        policy_kwargs={"features_extractor_class": _Layers, "net_arch": [], "normalize_images": False},
    )  # fmt: skip
    theirs.set_logger(Logger(folder=None, output_formats=[]))
    kept = theirs.rollout_buffer
    kept.observations[:, 0] = np.eye(6, dtype=np.float32)[rows.features.int().numpy()].transpose(0, 3, 1, 2)
    kept.actions[:, 0] = rows.actions.numpy()
    for name in ("values", "advantages", "returns"):
        getattr(kept, name)[:, 0] = getattr(rows, name).numpy()
    kept.log_probs[:] = -2.08
    kept.full = True
    return theirs.train


def _elsewhere(plan: Plan, rows: int) -> tuple[float, float]:
    """Shares of the CPU time of three updates on goodhart: outside of the network, and of telemetry alone.

    Telemetry is what the reporter's calls take in the training thread, and all of the other threads, which
    are the SDK's, as torch has one. No collector is there: what is sent is kept on disk.
    """
    envs = rows // STEPS * 4
    world = make("goodhart", WorldConfig(num_envs=envs))
    made = PPO(world.spec, PPOConfig(network="conv", popart=True, value_clip=0.2), seed=0)
    made.apply_plan(plan)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"OVERWATCH_SPOOL_DIR": folder, "OVERWATCH_QUIET": "1"}
        tower = start_tower(TowerConfig(endpoint="http://127.0.0.1:1"), world.spec, envs, {})
        timed = _Timed(tower)
        trainer = Trainer(world, made, TrainerConfig(updates=3, steps=STEPS), timed, lambda: None)
        began = time.thread_time()
        with _network_s(made) as spent:
            whole = _cost(trainer.run)
        others = whole - (time.thread_time() - began)
        tower.close(outcome="completed")
    return 1 - sum(spent) / whole, (timed.seconds + others) / whole


class _Timed:
    """A reporter that measures what another's calls take in the thread that makes them."""

    def __init__(self, reporter: Tower) -> None:
        self._reporter = reporter
        self.seconds = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase, its beginning and end measured."""
        began = time.thread_time()
        phase = self._reporter.phase(name)
        phase.__enter__()
        self.seconds += time.thread_time() - began
        try:
            yield
        finally:
            began = time.thread_time()
            phase.__exit__(None, None, None)
            self.seconds += time.thread_time() - began

    def __getattr__(self, name: str) -> Callable[..., None]:
        call = getattr(self._reporter, name)

        def measured(*arguments: object, **options: object) -> None:
            began = time.thread_time()
            call(*arguments, **options)
            self.seconds += time.thread_time() - began

        return measured


@contextmanager
def _network_s(made: PPO) -> Iterator[list[float]]:
    """CPU seconds of every forward, backward and step inside."""
    spent: list[float] = []

    def timed(work: Callable[..., object]) -> Callable[..., object]:
        def measured(*arguments: object, **options: object) -> object:
            began = time.process_time()
            try:
                return work(*arguments, **options)
            finally:
                spent.append(time.process_time() - began)

        return measured

    backward = torch.autograd.backward
    made.policy.forward = timed(made.policy.forward)  # type: ignore[method-assign]  # measured from outside
    made._step = timed(made._step)  # type: ignore[method-assign,assignment]
    torch.autograd.backward = timed(backward)  # type: ignore[assignment]
    try:
        yield spent
    finally:
        torch.autograd.backward = backward


if __name__ == "__main__":
    main(sys.argv[1:])

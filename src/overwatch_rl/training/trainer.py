"""The training loop, as its phases: collect, estimate, update, report.

Rules: every number of an update is made here or in the algorithm and handed to one reporter; nothing is
measured twice. Ends between two steps when it is told to stop. Must not know where numbers go, how worlds
work inside, or who started it.

Shapes: T steps, N envs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from overwatch_rl import checkpoints
from overwatch_rl.algos import ppo
from overwatch_rl.algos.networks import ActorCritic, player
from overwatch_rl.algos.ppo import PPOConfig
from overwatch_rl.algos.returns import ReturnsConfig, estimate
from overwatch_rl.buffer import RolloutBuffer
from overwatch_rl.checkpoints import Manifest
from overwatch_rl.envs.base import VecEnv
from overwatch_rl.types import (
    Batch,
    EarlyStop,
    EndedEpisodes,
    Observation,
    Reporter,
    Stats,
    Step,
    StepReport,
    UpdateReport,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """How long and how to train."""

    updates: int | None = 30
    """Updates to do; `None` until it is told to stop."""
    steps: int = 60
    """Steps of every env in one rollout."""
    seed: int = 0
    """Same seed, same numbers."""
    returns: ReturnsConfig = field(default_factory=ReturnsConfig)
    """How advantages are estimated."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """How an update learns."""

    def __post_init__(self) -> None:
        if self.updates is not None and self.updates < 1:
            raise ValueError(f"updates is {self.updates}; use 1 or more")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; use 1 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; use 0 or more")


class EpisodeTally:
    """Returns and lengths of running episodes, and those that ended since the last update."""

    def __init__(self, num_envs: int) -> None:
        self._returns = torch.zeros(num_envs, dtype=torch.float64)
        self._lengths = torch.zeros(num_envs, dtype=torch.int64)
        self._ended: list[Tensor] = []

    def add(self, step: Step) -> EndedEpisodes | None:
        """Count one step; the episodes that ended with it, or `None`."""
        self._returns += step.reward
        self._lengths += 1
        rows = (step.terminated | step.truncated).nonzero().squeeze(1)
        if not len(rows):
            return None
        ended = EndedEpisodes(
            env_id=rows,
            episode_return=self._returns[rows],
            length=self._lengths[rows],
            metric=step.metric[rows],
        )
        self._returns[rows] = 0.0
        self._lengths[rows] = 0
        self._ended.append(ended.episode_return)
        return ended

    def take_mean(self) -> float:
        """Mean return of the episodes that ended since the last call; NaN when none did."""
        ended, self._ended = self._ended, []
        return float(torch.cat(ended).mean()) if ended else math.nan


class Trainer:
    """One policy, one world, one reporter."""

    def __init__(
        self,
        env: VecEnv,
        config: TrainerConfig,
        reporter: Reporter,
        stop: Callable[[], str | None],
    ) -> None:
        """`stop` is asked after each step: the outcome to end with, or `None` to go on."""
        self._env = env
        self._config = config
        self._reporter = reporter
        self._stop = stop
        seeds = np.random.SeedSequence(config.seed).generate_state(4).tolist()
        init, self._draws, self._order = (torch.Generator().manual_seed(seed) for seed in seeds[:3])
        self.policy = ActorCritic(env.num_features, env.action_spec, init)
        self._optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.ppo.learning_rate, eps=1e-5)
        shape = (config.steps, env.num_envs)
        if config.steps * env.num_envs < config.ppo.minibatches:
            raise ValueError(
                f"{config.steps} steps of {env.num_envs} envs are too few for "
                f"{config.ppo.minibatches} minibatches; use more steps or envs"
            )
        self._buffer = RolloutBuffer(shape, env.num_features, env.action_spec)
        self._tally = EpisodeTally(env.num_envs)
        self._observation = env.reset(seeds[3])
        self._num_steps = 0
        self.updates_done = 0

    def run(self) -> str:
        """Train until the updates are done or it is told to stop; the outcome in one word."""
        while self._config.updates is None or self.updates_done < self._config.updates:
            began = time.perf_counter()
            with self._reporter.phase("collect"):
                outcome = self._collect()
            if outcome is not None:
                return outcome
            with self._reporter.phase("estimate"):
                batch = self._estimate()
            with self._reporter.phase("update"):
                stats, early_stop = self._update(batch)
            self._report(stats, early_stop, time.perf_counter() - began)
        return "completed"

    @torch.no_grad()
    def _collect(self) -> str | None:
        """Fill the buffer; the outcome when it was told to stop on the way."""
        self._buffer.clear()
        for _ in range(self._config.steps):
            began = time.perf_counter()
            seen = self._observation
            with self._reporter.phase("inference"):
                decision = self.policy.act(seen, self._draws)
                values = self.policy.value(seen.features)
            self._buffer.decide(seen, decision.actions, decision.log_probs, values)
            with self._reporter.phase("env_wait"):
                step = self._env.step(decision.actions)
            final = None if step.final_features is None else self.policy.value(step.final_features)
            self._buffer.outcome(step, final)
            self._observation = step.observation
            self._num_steps += 1
            report = StepReport(
                index=self._num_steps,
                actions=decision.actions,
                step=step,
                duration_s=time.perf_counter() - began,
                ended=self._tally.add(step),
            )
            self._reporter.step(report)
            outcome = self._stop()
            if outcome is not None:
                return outcome
        return None

    @torch.no_grad()
    def _estimate(self) -> Batch:
        rollout = self._buffer.rollout(self.policy.value(self._observation.features))
        return estimate(rollout, self._config.returns)

    def _update(self, batch: Batch) -> tuple[Stats, EarlyStop | None]:
        return ppo.update(self.policy, self._optimizer, batch, self._config.ppo, self._order)

    def _report(self, stats: Stats, early_stop: EarlyStop | None, update_time_s: float) -> None:
        self.updates_done += 1
        values = stats.read()
        values["learning_rate"] = float(self._optimizer.param_groups[0]["lr"])
        values["return"] = self._tally.take_mean()
        values["update_time"] = update_time_s
        report = UpdateReport(index=self.updates_done, values=values, early_stop=early_stop)
        self._reporter.update(report)

    def save(self, folder: Path, world: str, num_slots: int) -> Path:
        """Keep the policy as it is now; returns the file of its weights."""
        manifest = Manifest(
            world=world,
            num_slots=num_slots,
            num_features=self._env.num_features,
            num_logits=self._env.action_spec.num_logits,
            updates=self.updates_done,
        )
        return checkpoints.save(folder, self.policy.state_dict(), manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """A policy as it was kept."""

    manifest: Manifest
    weights: dict[str, Tensor]

    def player(self, env: VecEnv) -> Callable[[Observation], Tensor]:
        """Its likeliest actions in `env`; raises `ValueError` when it was trained for another shape."""
        made_for = (self.manifest.num_features, self.manifest.num_logits)
        if made_for != (env.num_features, env.action_spec.num_logits):
            raise ValueError(
                f"the policy was trained with {self.manifest.num_slots} slots in {self.manifest.world}, "
                "this world has another shape; leave --slots and --world out"
            )
        policy = ActorCritic(env.num_features, env.action_spec, torch.Generator())
        policy.load_state_dict(self.weights)
        return player(policy)


def load_policy(folder: Path) -> TrainedPolicy:
    """The policy that a run kept in `folder`; raises `ValueError` when there is none."""
    weights, manifest = checkpoints.load(folder)
    return TrainedPolicy(manifest=manifest, weights=weights)

"""An actor as a process: what it is made of, and how it ends.

Rules: whatever happens, each part is closed and the run's telemetry ends with its outcome. Must not know how
an actor works inside.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import click
import torch

from overwatch.platform import keep_large_blocks
from overwatch_rl.actor.service import Actor, ActorConfig, Appending, Dependencies
from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.client import Access, ReplayError
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.telemetry.reporter import Fanout
from overwatch_rl.telemetry.running import log_of
from overwatch_rl.telemetry.tower import TowerConfig, start_tower
from overwatch_rl.training.experience import EPISODES_A_LIFE, Source
from overwatch_rl.types import Reporter
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.checking import rounded, shapes_of
from overwatch_rl.weights.manifest import Accepted
from overwatch_rl.weights.subscriber import Subscriber
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig

_APART: Final = 1_000_003
"""By which the seeds of actors differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSettings:
    """One actor."""

    config: LearnerConfig
    run_id: str
    rank: int
    """Number of this actor in the run."""
    envs: int
    servers: tuple[str, ...]
    access: Access
    weights: Place
    public_key: str
    """By which the learner signs its weights."""
    tower: TowerConfig | None
    """`None` without telemetry."""
    log: str
    is_checked: bool = False
    rollouts: int | None = None


def run(settings: ActorSettings, stop: Callable[[], str | None]) -> str:
    """Act until it is done or asked to stop; the outcome in one word."""
    keep_large_blocks()
    torch.set_num_threads(1)
    config = settings.config
    world = make(config.world, WorldConfig(num_envs=settings.envs), config.world_settings)
    policy = config.kind.make(world.spec, config.learned, seed=config.seed)
    tower = None
    outcome, reason = "failed", None
    reporters: list[Reporter] = []
    try:
        if settings.tower is not None:
            tower = start_tower(settings.tower, world.spec, settings.envs, {"actor": str(settings.rank)})
            reporters.append(tower)
        reporters.append(log_of(settings.log, settings.run_id, config.hash, tower, actor=settings.rank))
        with ExitStack() as stack:
            stack.callback(getattr(world, "close", lambda: None))
            run_of_tower = None if tower is None else tower.run
            client = BlockingReplayClient(settings.servers, settings.access, run=run_of_tower)
            stack.callback(client.close)
            state = policy.state_dict()
            acting = {name: state[name] for name in policy.acting_keys()}
            shapes = shapes_of(rounded(acting, config.weights.dtype))
            accepted = Accepted(run_id=settings.run_id, verifier=Verifier(settings.public_key), shapes=shapes)
            channel = open_channel(settings.weights)
            weights = Subscriber(channel, accepted)
            stack.callback(weights.close)
            around = Dependencies(
                weights=weights,
                experience=Appending(client),
                reporter=Fanout(reporters),
                meter=Meter(run_of_tower),
                stop=stop,
            )
            outcome = Actor(world, policy, _config(settings), around).run()
    except BaseException as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ReplayError):
            raise click.ClickException(str(error)) from error
        raise
    finally:
        Fanout(reporters).close(outcome=outcome, reason=reason)
    return outcome


def _config(settings: ActorSettings) -> ActorConfig:
    config = settings.config
    source = Source(
        run=settings.run_id, actor=settings.rank, first_episode=int(time.time()) * EPISODES_A_LIFE
    )
    return ActorConfig(
        source=source,
        steps=config.batch.steps,
        seed=config.seed + _APART * settings.rank,
        rows=config.rows,
        lead=config.lead,
        queue=None if config.kind.is_replayed else config.queue,
        patience_s=config.batch.patience_s,
        is_checked=settings.is_checked,
        is_summarised=not config.kind.is_replayed,
        rollouts=settings.rollouts,
    )

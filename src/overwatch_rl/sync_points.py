"""Where the training thread reads from the device, by name: where, why and how often.

Between the first and the last update nothing else may: a test runs the loop on tensors without values, where
a read outside a named point raises.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPoint:
    """One named read."""

    where: str
    why: str
    how_often: str


SYNC_POINTS: Final[dict[str, SyncPoint]] = {
    "gym.actions": SyncPoint(
        where="worlds/gym.py",
        why="Gymnasium's envs take their actions on the host",
        how_often="once a step, in worlds gym:* only",
    ),
    "gym.results": SyncPoint(
        where="worlds/gym.py",
        why="what Gymnasium's envs show goes to the device",
        how_often="once a step, in worlds gym:* only",
    ),
    "ppo.early_stop": SyncPoint(
        where="algorithms/ppo.py",
        why="saves the work of the epochs that a stopped update would skip",
        how_often="once an epoch, on a CPU without other ranks and with target_kl only",
    ),
    "dqn.priorities": SyncPoint(
        where="training/replayed.py",
        why="the errors of a batch become priorities in the table, which decide what is sampled next",
        how_often="once a gradient step, with dqn only",
    ),
    "morphogenesis.envs": SyncPoint(
        where="worlds/morphogenesis/world.py",
        why="which envs and branches are live decides what is computed; actions must be legal",
        how_often="once a step, in morphogenesis only, which runs on a CPU",
    ),
    "log.view": SyncPoint(
        where="telemetry/log.py",
        why="shows what one environment sees",
        how_often="once a rollout, with --view only, as the side-by-side screen starts its trainers",
    ),
    "trainer.delivery": SyncPoint(
        where="training/delivery.py",
        why="reads the statistics of an update that the device has finished",
        how_often="once an update, from pinned memory that is already there",
    ),
}

counts: Final[Counter[str]] = Counter()
"""How often each point was passed in this process."""


@contextmanager
def sync_point(name: str) -> Iterator[None]:
    """Read from the device inside; raises `KeyError` for a name that is not in the table."""
    _ = SYNC_POINTS[name]
    counts[name] += 1
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # theirs
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)

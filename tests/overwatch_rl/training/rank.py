"""What one rank does in the test of several: gradients, an early stop, the command; writes what it found.

Started as `python -m tests.overwatch_rl.training.rank FOLDER` with torchrun's variables.
"""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from overwatch_rl.algorithms.common import Batch, Ranks
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.cli import main
from overwatch_rl.training import distributed
from overwatch_rl.training.distributed import Joined, joined, place
from tests.overwatch_rl.algorithms.small import batch, ppo, world_spec

STEPPED = PPOConfig(minibatches=1, popart=True, normalise_observations=False)
STOPPING = PPOConfig(learning_rate=1e-4, target_kl=1e-2)
TRAIN = (
    "train", "--no-telemetry", "--updates", "2", "--envs", "2", "--steps", "6", "--minibatches", "1",
    "--epochs", "1", "--seed", "5", "--log", "text",
)  # fmt: skip


def data(rank: int) -> Batch:
    """What a policy that no rank has did in the worlds of a rank: estimates without PopArt."""
    return batch(ppo(seed=9), seed=rank)


def both() -> Batch:
    """The rows of two ranks."""
    parts = [data(rank) for rank in (0, 1)]
    names = ("features", "mask", "actions", "log_probs", "values", "advantages", "returns")
    return replace(
        parts[0], stats={}, **{name: torch.cat([getattr(one, name) for one in parts]) for name in names}
    )


def gradients(made: PPO, rows: Batch) -> list[Tensor]:
    """Of the whole batch as one minibatch, reduced over ranks, PopArt moved before; not clipped."""
    made.popart.update(rows.returns, made.network.value, made._optimizer, made._ranks)
    made._backward(made._scaled(rows), len(rows))
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in made._parameters]
    made._ranks.average(found)
    return found


def stopped(made: PPO, rank: int) -> dict[str, float]:
    """An update in which only the second rank has moved too far: its data claim another policy."""
    rows = batch(made, seed=rank)
    if rank == 1:
        rows = replace(rows, log_probs=rows.log_probs - 0.5)
    stats = made.update(rows)
    return {name: float(value) for name, value in stats.items()}


def work(folder: Path, ranks: Ranks, rank: int) -> None:
    """Everything but the command."""
    assert isinstance(ranks, Joined)
    made = PPO(world_spec(), STEPPED, seed=rank, ranks=ranks)  # of different seeds: the first's are shared
    found = gradients(made, data(rank))
    other = PPO(world_spec(), STOPPING, seed=0, ranks=ranks)
    stats = stopped(other, rank)
    waited = [ranks.waited_s(), ranks.waited_s()]
    torch.save(
        {
            "gradients": found,
            "popart": made.popart.state_dict(),
            "stats": stats,
            "weights": other.policy.state_dict(),
            "waited": waited,
        },
        folder / f"rank{rank}.pt",
    )


def command(folder: Path, ranks: Ranks, rank: int) -> None:
    """`overwatch-rl train` as torchrun runs it, in the group that this process has joined already."""

    def same_group(*_: object) -> contextlib.AbstractContextManager[Ranks]:
        # Gloo does not always connect a second group of one process, which no run makes.
        return contextlib.nullcontext(ranks)

    distributed.joined = same_group  # type: ignore[assignment]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*TRAIN, "--out", str(folder / f"out{rank}")], standalone_mode=False)
    (folder / f"printed{rank}.json").write_text(json.dumps(printed.getvalue()), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    here = place()
    with joined(here, "cpu") as every:
        work(Path(sys.argv[1]), every, here.rank)
        command(Path(sys.argv[1]), every, here.rank)

"""Toy hosts that grow a seed each, counted by the flight's own code; what ails them is a fault.

A host's accuracy is its own skill and what its seed adds. Ailing hosts forget what they knew while their
seeds are let in by a thousandth, so that these learn next to nothing; now and then a loss overflows.
"""

import argparse
import time

import torch
from torch import Tensor

from overwatch.catalog import Stage
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.rewards import Evidence, Rewards, seed_counts, summary
from tests.live.trainers.reporting import reporting

HOSTS, STEPS, UPDATE_S = 8, 12, 0.1
PATH = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, *(Stage.HOLDING,) * 8, Stage.FOSSILISED)
"""Stages of a seed, one a step."""


def main() -> None:
    """Grow a seed in each host, an episode an update."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--healthy", action="store_true")
    flags = parser.parse_args()
    chance = torch.Generator().manual_seed(0)
    run_of = reporting(run_id=flags.run_id, task="hosts", endpoint=flags.endpoint, sample=False)
    with run_of as run:
        for update in range(1, flags.updates + 1):
            time.sleep(UPDATE_S)
            run.update(update=update, **episode(chance, ails=not flags.healthy))


def episode(chance: torch.Generator, *, ails: bool) -> dict[str, float]:
    """The rows of one update."""
    shape = (HOSTS, 1)
    rewards = Rewards(HOSTS, MorphogenesisConfig(slots=1))
    skill = torch.full((HOSTS,), 0.6 if ails else 0.3)
    before, begun, accuracy = torch.full(shape, Stage.DORMANT.code), skill, skill
    columns: dict[str, list[Tensor]] = {}
    for step, stage_now in enumerate(PATH):
        stage, at = torch.full(shape, stage_now.code), torch.full((HOSTS,), step)
        skill = (skill + torch.randn(HOSTS, generator=chance) * 0.005 + (-0.04 if ails else 0.03)).clamp(
            0.1, 1
        )
        alpha = 0.001 if ails else 1.0
        adds = 0.2 if step >= PATH.index(Stage.BLENDING) else 0.0
        progress, accuracy = skill + adds - accuracy, skill + adds
        loss = torch.where(
            torch.rand(HOSTS, generator=chance) < (0.05 if ails else 0.0), torch.inf, -accuracy.log()
        )
        code = (~loss.isfinite()).to(torch.uint8)
        evidence = Evidence(
            progress=progress,
            accuracy=accuracy,
            contribution=torch.full(shape, adds),
            improvement=(accuracy - begun)[:, None],
            pairs=torch.full((HOSTS, 1, 1), torch.nan),
            stage_before=before,
            stage=stage,
            age=torch.ones(shape, dtype=torch.int64),
            age_before=torch.ones(shape, dtype=torch.int64),
            life=torch.full(shape, step),
            alpha_change=torch.zeros(shape),
            overhead=torch.full((HOSTS,), 1.0),
            op=torch.zeros(HOSTS, dtype=torch.int64),
            slot=torch.zeros(HOSTS, dtype=torch.int64),
            refused=torch.zeros(HOSTS, dtype=torch.bool),
            auto_pruned=torch.zeros(shape, dtype=torch.bool),
            governor=code,
            step=at,
            is_end=at == STEPS - 1,
        )
        found = {**rewards.step(evidence)[1], **seed_counts(evidence)}
        share = torch.full((HOSTS,), alpha / (alpha + 1.0) if adds else torch.nan)
        found |= {"metric": accuracy, "growth_ratio": 1.0 + evidence.overhead, "seed_share": share}
        for name, value in (found | {"governor": code}).items():
            columns.setdefault(name, []).append(value)
        before = stage
    stacked = {name: torch.stack(values) for name, values in columns.items()}
    ended = torch.zeros(STEPS, HOSTS, dtype=torch.bool)
    ended[-1] = True
    return {name: float(value) for name, value in summary(stacked, ended).items()}


if __name__ == "__main__":
    main()

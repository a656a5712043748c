"""Steps of one env or of many, as evidence for tests: nothing happened but what a test names."""

from typing import Any

import torch
from torch import Tensor

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch_rl.worlds.morphogenesis.actions import Op
from overwatch_rl.worlds.morphogenesis.rewards import Evidence

D, G, T, B, H, F = (
    Stage.DORMANT,
    Stage.GERMINATED,
    Stage.TRAINING,
    Stage.BLENDING,
    Stage.HOLDING,
    Stage.FOSSILISED,
)


def nothing(envs: int = 1, slots: int = 1) -> dict[str, Tensor]:
    """A step in which nothing happened in empty slots."""
    shape = (envs, slots)
    return {
        "progress": torch.zeros(envs),
        "accuracy": torch.zeros(envs),
        "contribution": torch.full(shape, torch.nan),
        "improvement": torch.full(shape, torch.nan),
        "pairs": torch.full((envs, slots, slots), torch.nan),
        "stage_before": torch.full(shape, D.code),
        "stage": torch.full(shape, D.code),
        "age": torch.ones(shape, dtype=torch.int64),
        "age_before": torch.zeros(shape, dtype=torch.int64),
        "life": torch.zeros(shape, dtype=torch.int64),
        "alpha_change": torch.zeros(shape),
        "overhead": torch.zeros(envs),
        "op": torch.zeros(envs, dtype=torch.int64),
        "slot": torch.zeros(envs, dtype=torch.int64),
        "refused": torch.zeros(envs, dtype=torch.bool),
        "auto_pruned": torch.zeros(shape, dtype=torch.bool),
        "governor": torch.zeros(envs, dtype=torch.uint8),
        "step": torch.full((envs,), 10),
        "is_end": torch.zeros(envs, dtype=torch.bool),
    }


def one(*, stages: tuple[Stage, ...] = (D,), before: tuple[Stage, ...] = (), **more: Any) -> Evidence:
    """A step of one env whose slots stay in `stages`, or came from `before`."""
    found = nothing(1, len(stages))
    found["stage"] = torch.tensor([[stage.code for stage in stages]])
    found["stage_before"] = torch.tensor([[stage.code for stage in before or stages]])
    for name, value in more.items():
        found[name] = torch.tensor([value], dtype=found[name].dtype)
    return Evidence(**found)


def random_steps(seed: int, steps: int, envs: int, slots: int) -> list[Evidence]:
    """Steps whose stages follow the table of transitions and whose numbers are anything they may be."""
    draws = torch.Generator().manual_seed(seed)
    legal = torch.eye(len(BY_CODE), dtype=torch.bool)
    for one_stage, onward in TRANSITIONS.items():
        legal[one_stage.code, [other.code for other in onward]] = True
    stage = torch.full((envs, slots), D.code)
    age = torch.zeros((envs, slots), dtype=torch.int64)
    found = []
    for step in range(steps):
        chances = legal[stage].float().flatten(0, 1)
        after = torch.multinomial(chances, 1, generator=draws).view(envs, slots)
        now = nothing(envs, slots)
        now |= {"stage_before": stage, "stage": after, "age_before": age}
        age = torch.where(after == stage, age + 1, 1)
        live = (after > D.code) & (after <= F.code)

        def drawn(*shape: int) -> Tensor:
            return torch.rand(shape, generator=draws) * 2 - 1

        now |= {
            "age": age,
            "progress": drawn(envs),
            "accuracy": drawn(envs).abs(),
            "contribution": drawn(envs, slots).where(live, torch.nan),
            "improvement": drawn(envs, slots).where(live, torch.nan),
            "pairs": drawn(envs, slots, slots) * 0.1,
            "life": torch.full((envs, slots), step // 2).where(live, 0),
            "alpha_change": drawn(envs, slots),
            "overhead": drawn(envs).abs() * 12,
            "op": torch.randint(len(Op), (envs,), generator=draws),
            "slot": torch.randint(slots, (envs,), generator=draws),
            "refused": drawn(envs) > 0.5,
            "governor": (drawn(envs) > 0.8).to(torch.uint8),
            "step": torch.full((envs,), step),
            "is_end": torch.full((envs,), step == steps - 1),
        }
        found.append(Evidence(**now))
        stage = after
    return found

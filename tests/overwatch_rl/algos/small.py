"""A small action space, a policy and batches for the tests of the algorithms."""

import torch
from overwatch_rl.algos.networks import ActorCritic

from overwatch_rl.types import ActionSpec, Batch, Head, Observation

SPEC = ActionSpec(
    heads=(
        Head(name="op", labels=("wait", "put", "drop")),
        Head(name="slot", labels=("a", "b")),
        Head(name="kind", labels=("x", "y", "z")),
    ),
    uses=((True, False, False), (True, True, True), (True, True, False)),
)
FEATURES = 4


def policy(seed: int = 0) -> ActorCritic:
    """An untrained one, with logits that differ enough to matter."""
    made = ActorCritic(FEATURES, SPEC, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        made.actor[-1].weight.mul_(300.0)
    return made


def observation(rows: int, seed: int = 0) -> Observation:
    """Random features; in every row `drop` is illegal, and `put` only into slot b."""
    features = torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros(rows, SPEC.num_logits, dtype=torch.bool)
    ops, slots, kinds = SPEC.unpack(mask)
    ops[:, :2] = True
    slots[:, 1, 1] = True
    kinds[:, 1, :2] = True
    packed = torch.cat([ops, slots.flatten(1), kinds.flatten(1)], dim=1)
    return Observation(features=features, mask=packed)


def batch(made: ActorCritic, rows: int, seed: int = 0) -> Batch:
    """What `made` did on random observations, with random advantages and returns."""
    seen = observation(rows, seed)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        decision = made.act(seen, draws)
        values = made.value(seen.features)
    return Batch(
        features=seen.features,
        mask=seen.mask,
        actions=decision.actions,
        log_probs=decision.log_probs,
        values=values,
        advantages=torch.randn(rows, generator=draws),
        returns=torch.randn(rows, generator=draws),
    )

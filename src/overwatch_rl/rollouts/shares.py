"""Who gets which part of a batch, and which sizes of groups can make one up.

Owns shares, presence and reachable sizes. A minimum is a floor: what is left goes by weight. An environment
that is not present has no share. Must not know batches, leases or tickets.
"""

from collections.abc import Iterable, Mapping

from overwatch_rl.rollouts.state import Env, State
from overwatch_rl.web.faults import RefusedError


def present(state: State, also: int | None = None) -> dict[int, Env]:
    """The environments that are here, and the one whose call shows that it is."""
    return {env_id: env for env_id, env in state.envs.items() if env.presence == "present" or env_id == also}


def known(state: State, env_id: int) -> Env:
    """Return an environment; raise `RefusedError` where it is not registered."""
    if env_id not in state.envs:
        why = f"env_id {env_id} is not registered here; POST /register-env again"
        raise RefusedError(why, "env_id")
    return state.envs[env_id]


def shares(state: State, also: int | None = None) -> dict[int, float]:
    """Part of a batch by present environment: at least its minimum, the rest by weight."""
    here = present(state, also)
    wished = sum(env.minimum for env in here.values())
    minima = {found: env.minimum / max(1.0, wished) for found, env in here.items()}
    fixed: dict[int, float] = {}
    while True:
        left = 1.0 - sum(fixed.values())
        weights = {found: env.weight for found, env in here.items() if found not in fixed}
        total = sum(weights.values())
        by_weight = {found: left * weight / total for found, weight in weights.items()}
        below = {found: minima[found] for found, part in by_weight.items() if part < minima[found]}
        if not below:
            return {**fixed, **by_weight}
        fixed |= below


def sums(sizes: Iterable[int], most: int) -> int:
    """Bit n is set where any number of groups of these sizes add up to n sequences, up to `most`."""
    bits, mask = 1, (1 << (most + 1)) - 1
    for size in sizes:
        step = size
        while step <= most:
            bits |= bits << step & mask
            step *= 2
    return bits


def bounded_sums(counts: Mapping[int, int], most: int) -> int:
    """As `sums`, with so many groups of each size."""
    bits, mask = 1, (1 << (most + 1)) - 1
    for size, available in counts.items():
        left, part = min(available, most // size), 1
        while left > 0:
            bits |= bits << size * min(part, left) & mask
            left -= part
            part *= 2
    return bits


def unreachable(state: State, size: int) -> str | None:
    """Why a group of this size can be part of no batch, beside the sizes that are known; else `None`."""
    batch = state.batch_size
    if batch == 0 or batch % size == 0:
        return None
    if size > batch:
        return (
            f"a group of {size} is larger than the batch of {batch}; send at most {batch} sequences a group"
        )
    sizes = {env.registered.group_size for env in state.envs.values() if env.presence != "disconnected"}
    sizes |= {lane.sequences for lane in state.lanes} | {size}
    if sums(sizes, batch) >> (batch - size) & 1:
        return None
    beside = ", ".join(map(str, sorted(sizes - {size}))) or "no other size"
    return (
        f"groups of {size} beside {beside} never add up to a batch of {batch}; "
        f"use a group size that divides {batch}"
    )

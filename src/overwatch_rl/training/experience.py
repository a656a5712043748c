"""A rollout as chunks of experience: what an actor appends, and the encoding that gives its bytes a meaning.

Rules: a chunk ends where an episode does and where the rollout does; what bootstraps an estimate, the
observation after its last step, is with every chunk whose episode did not terminate. Nothing is converted:
the bytes are those of the rollout. Must not know where chunks go.

Shapes: T steps, N envs, S an observation, L outputs, H heads, D dimensions of a continuous action.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Array, Chunk, Column, Encoding, End, encode
from overwatch_rl.types import Box, Rollout, Summary, WorldSpec

SUMMARY: Final = "summary"
"""Column of the world's own numbers, in the order of `WorldSpec.summarised`, `UNDEFINED` where one is; each
chunk of a rollout has those of the whole."""
EPISODES_A_LIFE: Final = 1_000_000
"""By which the episodes of an actor's lives are apart, counted in seconds."""


def encoding_of(spec: WorldSpec, *, has_mask: bool, has_summary: bool = False) -> Encoding:
    """The columns of what a policy with a critic did in a world.

    `has_mask`: its observations have one; `has_summary`: the world's own numbers go with it, if it has any.
    """
    action, seen = spec.action, spec.observation
    dtype = str(seen.dtype).removeprefix("torch.")
    continuous = isinstance(action, Box)
    width = action.num_outputs if isinstance(action, Box) else action.num_heads
    names = spec.summarised if has_summary else ()
    summary = (Column(SUMMARY, "float32", (len(names),), per_step=False),) if names else ()
    columns = (
        Column("observation", dtype, seen.shape),
        Column("action", "float32" if continuous else "int64", (width,)),
        Column("log_probs", "float32", (action.num_heads,)),
        Column("value", "float32"),
        Column("reward", "float32"),
        *((Column("mask", "bool", (action.num_outputs,)),) if has_mask else ()),
        Column(FINAL_OBSERVATION, dtype, seen.shape, per_step=False),
        *summary,
    )
    return Encoding(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Whose experience it is."""

    run: str
    actor: int
    """Number of the actor in the run."""
    first_episode: int = 0
    """Number of every env's first episode: greater in every life of an actor."""


class Chunker:
    """Cuts the rollouts of N envs, and counts their episodes."""

    def __init__(self, source: Source, encoding: Encoding, envs: int, summary: Summary | None = None) -> None:
        """`summary` makes what the column `SUMMARY` has, where the encoding has it."""
        self._source = source
        self._summary = summary if SUMMARY in encoding.by_name else None
        self._encoding = encoding
        self._episodes = [source.first_episode] * envs
        self._steps = [0] * envs

    def chunks(self, rollout: Rollout, lineage: int, version: int) -> list[Chunk]:
        """The chunks of a rollout that one version collected, env by env, each in order."""
        columns = _by_env(rollout)
        last = _array(rollout.last.features.clone())
        places = _places(rollout)
        terminated = _array(rollout.terminated)
        ends = terminated | _array(rollout.truncated)
        of_all = self._of_all(rollout)
        found: list[Chunk] = []
        for env in range(ends.shape[1]):
            start = 0
            for stop in (*(np.flatnonzero(ends[:, env]) + 1).tolist(), len(ends)):
                if stop == start:
                    continue
                is_over = bool(ends[stop - 1, env])
                end: End = (
                    "cut" if not is_over else "terminated" if terminated[stop - 1, env] else "truncated"
                )
                part = of_all | {name: column[env, start:stop] for name, column in columns.items()}
                if end != "terminated":
                    part[FINAL_OBSERVATION] = last[env] if end == "cut" else places[env, stop - 1]
                found.append(
                    Chunk(
                        run=self._source.run,
                        env=f"{self._source.actor}/{env}",
                        episode=self._episodes[env],
                        first_step=self._steps[env],
                        steps=stop - start,
                        lineage=lineage,
                        version=version,
                        end=end,
                        columns=encode(part, self._encoding),
                    )
                )
                self._count(env, stop - start, end)
                start = stop
        return found

    def _of_all(self, rollout: Rollout) -> dict[str, Array]:
        """What each chunk of a rollout has of the whole."""
        if self._summary is None:
            return {}
        values = self._summary(rollout.columns, rollout.terminated | rollout.truncated)
        return {SUMMARY: _array(torch.stack([value.to(torch.float32) for value in values.values()]))}

    def _count(self, env: int, steps: int, end: End) -> None:
        if end == "cut":
            self._steps[env] += steps
        else:
            self._episodes[env] += 1
            self._steps[env] = 0


def _by_env(rollout: Rollout) -> dict[str, Array]:
    """A copy of each column, N T ... in memory too: a part of one env's steps is then one piece."""
    columns = {
        "observation": rollout.features, "action": rollout.actions, "log_probs": rollout.log_probs,
        "value": rollout.values, "reward": rollout.rewards,
    }  # fmt: skip
    if rollout.mask is not None:
        columns["mask"] = rollout.mask
    kept = torch.contiguous_format
    return {
        name: _array(column.transpose(0, 1).clone(memory_format=kept)) for name, column in columns.items()
    }


def _places(rollout: Rollout) -> dict[tuple[int, int], Array]:
    """The final observations that a rollout keeps, by env and step."""
    if rollout.final is None or rollout.final_at is None:
        return {}
    final, at = _array(rollout.final.clone()), _array(rollout.final_at)
    kept = np.argwhere(at < len(rollout.rewards)).tolist()
    return {(env, int(at[place, env])): final[place, env] for place, env in kept}


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().to(torch.device("cpu")).numpy()
    return array

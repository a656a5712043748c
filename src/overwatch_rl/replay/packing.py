"""The origin's transitions, packed into chunks at the door.

Owns how single transitions become chunks. Rules: consecutive steps of one environment, episode and version
become one chunk; a step whose observation is not the last one's next observation begins a new one. A column
that a transition lacks is refused by its path, never filled in. Must not know the wire, nor tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overwatch_rl.replay.chunk import Chunk, Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One step, as the origin's clients send it."""

    id: str = ""
    env_id: str
    episode_id: str = ""
    step_number: int = 0
    observation: bytes
    """In the dtype and shape of the encoding's `observation`."""
    action: bytes
    next_observation: bytes
    reward: float
    done: bool
    priority: float | None = None
    timestamp: int | None = None
    """Unix nanoseconds."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """`run`, `lineage`, `version`, `truncated` (true or false), and numbers of further columns by their
    name."""


def pack(transitions: Sequence[Transition], encoding: Encoding) -> list[Chunk]:
    """Chunks of the transitions, in order. Raises `ValueError` naming the path of what is missing."""
    raise NotImplementedError

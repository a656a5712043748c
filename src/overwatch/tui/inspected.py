"""What the drawer can be about besides an env and a finding: a lane, a slot of an env, a line of the feed."""

from typing import NamedTuple, TypeAlias

from overwatch.snapshot import FeedLine


class LaneOf(NamedTuple):
    """A lane, by its name."""

    gpu_id: str


class SlotOf(NamedTuple):
    """A slot of an env: the seed in it, and those before."""

    env_id: int
    slot: str


Inspected: TypeAlias = LaneOf | SlotOf | FeedLine

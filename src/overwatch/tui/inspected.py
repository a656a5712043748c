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


class HostOf(NamedTuple):
    """The host, with its busiest processes."""


Inspected: TypeAlias = LaneOf | SlotOf | HostOf | FeedLine

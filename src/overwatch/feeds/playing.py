"""A player for whatever was opened."""

from typing import TypeAlias

from overwatch.feeds.inputs import Input
from overwatch.feeds.logplayer import LogPlayer
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording

AnyPlayer: TypeAlias = Player | LogPlayer


def player_of(opened: Input) -> AnyPlayer:
    """Stand at its beginning. Raises `RecordingError` where there is nothing to show."""
    return Player(opened) if isinstance(opened, Recording) else LogPlayer(opened)

"""Single episodes that a program logs as scalars: a return, and its length after it.

Rules: an episode is sent when it is whole, under env 0, since no logger names its env; an update has the
means of those since the update before. Must not know when an update is whole.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from overwatch.sdk import Run

MEANS: Final = frozenset({"return", "episode_length"})
"""Rows that a library may log apart from its updates."""
EPISODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "charts/episodic_return": "return",
        "charts/episodic_length": "episode_length",
        "charts/episode_reward": "return",
        "charts/episode_length": "episode_length",
    }
)
"""CleanRL's names of single episodes: the row that is their mean."""


class LoggedEpisodes:
    """The episode that is being logged, and those since the last update."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        self._ended: dict[str, list[float]] = {}

    def add(self, run: Run, mean: str, number: float) -> None:
        """A return or a length; those of one episode come one after the other."""
        if mean in self._open:
            self.end(run)
        self._open[mean] = number
        if len(self._open) == len(MEANS):
            self.end(run)

    def end(self, run: Run) -> None:
        """No more of the open episode is logged."""
        ended, self._open = self._open, {}
        for mean, number in ended.items():
            self._ended.setdefault(mean, []).append(number)
        if "return" in ended:
            length = ended.get("episode_length")
            lengths = None if length is None else [length]
            run.episodes(env_id=[0], episode_return=[ended["return"]], length=lengths)

    def means(self) -> dict[str, float]:
        """Of the episodes since the last time."""
        ended, self._ended = self._ended, {}
        return {name: sum(all_) / len(all_) for name, all_ in ended.items()}

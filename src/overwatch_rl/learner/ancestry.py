"""From which weights a training has come, and how far behind them experience is.

A run's lives: one began it, each other one resumed from a checkpoint of an earlier life, with a lineage of
its own and numbers above every one that was used before. Rules: the age of a version is the updates between
its weights and those of now, along the lines of training; a version that this training does not descend from
is abandoned, and never of age 0. Pure.
"""

from collections.abc import Sequence
from typing import Self

import msgspec

from overwatch_rl.artifacts.versions import Version


class Life(msgspec.Struct, frozen=True):
    """One life of a run, that what is trained now has come through."""

    lineage: int
    number: int
    """Of its first version."""
    updates: int
    """Updates that its weights had had then, in all lives together."""


class Age(msgspec.Struct, frozen=True):
    """How far behind a version is."""

    updates: int
    is_abandoned: bool


class Ancestry(msgspec.Struct, frozen=True):
    """The lives, oldest first; the last one is now."""

    lives: tuple[Life, ...] = (Life(1, 0, 0),)

    @classmethod
    def of(cls, kept: Sequence[Sequence[int]]) -> Self:
        """From what a checkpoint keeps."""
        return cls(tuple(Life(*one) for one in kept))

    def kept(self) -> list[list[int]]:
        """For a checkpoint."""
        return [[life.lineage, life.number, life.updates] for life in self.lives]

    def version(self, updates: int) -> Version:
        """The version of now, after so many updates in all lives together."""
        now = self.lives[-1]
        return Version(now.lineage, now.number + updates - now.updates)

    def resumed(self, updates: int, first: Version) -> "Ancestry":
        """That of a life which begins with `first`, from weights that had had so many updates."""
        return Ancestry((*self.lives, Life(first.lineage, first.number, updates)))

    def age(self, version: Version, updates: int) -> Age:
        """Of experience that `version` collected, for weights after so many updates."""
        for place, life in reversed(list(enumerate(self.lives))):
            if life.lineage != version.lineage or version.number < life.number:
                continue
            had = life.updates + version.number - life.number
            later = self.lives[place + 1 :]
            fork = min((one.updates for one in later), default=updates)
            if had <= fork:
                return Age(updates - had, is_abandoned=False)
            return Age(max(1, updates - fork + had - fork), is_abandoned=True)
        return Age(max(1, abs(self.version(updates).number - version.number)), is_abandoned=True)

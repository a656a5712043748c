"""The version of what a learner makes: weights, checkpoints, and experience of actors that used them.

Rules: a version is never used twice; of two the greater is the newer. Must not know what it is a version of.
"""

import re
from typing import Final

import msgspec

_TEXT: Final = re.compile(r"([0-9]{3,9})-([0-9]{8,18})")


class Version(msgspec.Struct, frozen=True, order=True):
    """Which line of training, and how far along."""

    lineage: int
    """1, and one more a resume."""
    number: int
    """Updates done; after a resume it begins above every number that was used before."""

    def __str__(self) -> str:
        """`001-00000010`: sorted as text it is in order too."""
        return f"{self.lineage:03d}-{self.number:08d}"

    def resumed(self, published: "Version | None" = None) -> "Version":
        """The first version of a line that goes on from this one; `published` is the newest of the key."""
        newest = self if published is None else published
        lineage, number = max(self.lineage, newest.lineage), max(self.number, newest.number)
        return Version(lineage + 1, number + 1)


def parse(text: str) -> Version | None:
    """The version that is spelled so; `None` of any other text."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Version(int(found[1]), int(found[2]))

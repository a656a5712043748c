"""Which experience is in the weights: what a checkpoint keeps of it, so that no step is trained twice.

Steps arrive in leases and are trained in batches, which need not end together. Kept are the last lease of
which everything was used, and what was used of later ones. Rules: what is dropped is used, too; experience
that comes again after a resume is used only as far as the kept part was not. Pure.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from overwatch_rl.replay.chunk import Chunk


class Key(NamedTuple):
    """A chunk, from any server, however often it comes."""

    env: str
    episode: int
    first_step: int


def key_of(chunk: Chunk) -> Key:
    """By which a chunk is known again."""
    return Key(chunk.env, chunk.episode, chunk.first_step)


class Ledger:
    """The leases of one life of a learner."""

    def __init__(self, cursor: int = 0, used: Sequence[Sequence[Any]] = ()) -> None:
        """`cursor` and `used` are as they were kept; nothing of a new run."""
        self.cursor = cursor
        """The last lease of which, and of all before it, everything was used."""
        self._leases: dict[int, dict[Key, int]] = {}
        """In order: the steps of each chunk."""
        self._used: dict[Key, int] = {Key(env, episode, step): count for env, episode, step, count in used}
        """Steps used of chunks that are in no lease up to the cursor."""

    @property
    def used(self) -> list[list[Any]]:
        """For a checkpoint: of each chunk beyond the cursor its key and the steps used."""
        return [[*key, count] for key, count in sorted(self._used.items())]

    def came(self, lease: int, chunks: Sequence[Chunk]) -> list[int]:
        """A lease has come: of each chunk the steps at its beginning that were used before."""
        self._leases[lease] = {key_of(chunk): chunk.steps for chunk in chunks}
        used = [min(chunk.steps, self._used.get(key_of(chunk), 0)) for chunk in chunks]
        self._advance()
        return used

    def use(self, chunk: Chunk, steps: int) -> None:
        """That many more steps of a chunk are in the weights, or were dropped."""
        key = key_of(chunk)
        self._used[key] = self._used.get(key, 0) + steps
        self._advance()

    def _advance(self) -> None:
        """Move the cursor over leases that are used up; what was in them does not come again."""
        while self._leases:
            lease, chunks = next(iter(self._leases.items()))
            if any(self._used.get(key, 0) < steps for key, steps in chunks.items()):
                return
            self.cursor = lease
            del self._leases[lease]
            for key in chunks:
                self._used.pop(key, None)

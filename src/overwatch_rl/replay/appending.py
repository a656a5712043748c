"""An append on its way: which requests it is cut into, and which of them are stored.

Rules: a request has one number for ever, so that a repeat of it is stored once; what was not answered keeps
its number until it is. Must not know connections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from overwatch_rl.replay.chunk import Chunk

USUAL_BYTES: Final = 4 << 20
"""Of one request: more gains nothing, and holds others up."""
_HEADER_BYTES: Final = 1024
"""Most that a chunk's header and the lengths of its columns take, its names left out."""


@dataclass(frozen=True, slots=True)
class Part:
    """One request."""

    number: int
    chunks: tuple[Chunk, ...]


@dataclass(slots=True)
class Appending:
    """All of one append."""

    table: str
    chunks: tuple[Chunk, ...]
    shards: list[list[Part]]
    """By server what is not known to be stored, in order."""

    def is_of(self, table: str, chunks: Sequence[Chunk]) -> bool:
        """Whether these very chunks are on their way to this table."""
        return (
            table == self.table
            and len(chunks) == len(self.chunks)
            and all(mine is given for mine, given in zip(self.chunks, chunks, strict=True))
        )


def parts_of(chunks: Sequence[Chunk], most_bytes: int, numbers: Iterator[int]) -> list[Part]:
    """The requests of chunks. Raises `ValueError` where a chunk is too large for any."""
    parts: list[Part] = []
    held: list[Chunk] = []
    size = 0
    for chunk in chunks:
        own = chunk.size + _HEADER_BYTES + 4 * (len(chunk.run) + len(chunk.env))
        if own + _HEADER_BYTES > most_bytes:
            raise ValueError(
                f"a chunk of {chunk.env!r} has {chunk.size} bytes, a message at most {most_bytes}; use fewer "
                "steps, or raise most_message_bytes and the server's --max-message-mib"
            )
        if held and size + own > min(USUAL_BYTES, most_bytes - _HEADER_BYTES):
            parts.append(Part(next(numbers), tuple(held)))
            held, size = [], 0
        held.append(chunk)
        size += own
    return [*parts, Part(next(numbers), tuple(held))] if held else parts

"""An append on its way: which requests it is cut into, and which of them are stored.

Rules: a request has one number for ever, so that a repeat of it is stored once; what was not answered keeps
its number until it is. Must not know connections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.messages import chunk_message

USUAL_BYTES: Final = 4 << 20
"""Of one request: more gains nothing, and holds others up."""
_BESIDE_BYTES: Final = 1024
"""Most that a request takes beside its chunks."""


@dataclass(slots=True)
class Appending:
    """All of one append."""

    table: str
    chunks: tuple[Chunk, ...]
    shards: list[list[pb.AppendRequest]]
    """By server what is not known to be stored, in order."""

    def is_of(self, table: str, chunks: Sequence[Chunk]) -> bool:
        """Whether these very chunks are on their way to this table."""
        return (
            table == self.table
            and len(chunks) == len(self.chunks)
            and all(mine is given for mine, given in zip(self.chunks, chunks, strict=True))
        )


def requests_of(
    chunks: Sequence[Chunk], encoding: Encoding, most_bytes: int, begin: Iterator[pb.AppendRequest]
) -> list[pb.AppendRequest]:
    """The requests of chunks, each begun anew. Raises `ValueError` where a chunk is too large for any."""
    requests: list[pb.AppendRequest] = []
    room = 0
    for chunk in chunks:
        message = chunk_message(chunk, encoding)
        size = message.ByteSize() + 16
        if size + _BESIDE_BYTES > most_bytes:
            raise ValueError(
                f"a chunk of {chunk.env!r} has {chunk.size} bytes, a message at most {most_bytes}; use fewer "
                "steps, or raise most_message_bytes and the server's --max-message-mib"
            )
        if size > room:
            requests.append(next(begin))
            room = min(USUAL_BYTES, most_bytes - _BESIDE_BYTES)
        requests[-1].chunks.append(message)
        room -= size
    return requests

"""The process's side of a handover, and the layout of a slot.

A slot is a file in memory: two numbers at its beginning name where a head lies, a JSON object with a note and
the place of each tensor. One byte on the line hands a slot over, the same byte hands it back, with an answer
in its memory; `CLOSING` ends the line.
Rules: what was handed over is finished, also when the sender is gone. Must not import torch.
"""

import ctypes
import mmap
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

CLOSING: Final = 255
START: Final = struct.Struct("<QQ")
"""Where the head, or the answer, begins, and its length."""
FIRST: Final = 64
"""Where the first tensor lies; each begins at a multiple of it."""
LEAST_BYTES: Final = 1 << 16
"""Of a slot, so that any answer has room."""
_POLL_INTERVAL_S: Final = 1.0
"""Time between two looks whether the sender still lives: its end of the line may be open elsewhere."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Where one tensor lies."""

    dtype: str
    """As safetensors spells it in its interface, `float32`."""
    shape: tuple[int, ...]
    offset: int
    size: int


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a slot."""

    note: msgspec.Raw
    pieces: dict[str, Piece]


_head: Final = msgspec.json.Decoder(Head)


class SharedBlock:
    """What one slot holds; valid until it is answered."""

    def __init__(self, slot: int, memory: mmap.mmap) -> None:
        start, size = START.unpack_from(memory, 0)
        head = _head.decode(memory[start : start + size])
        self.slot = slot
        self.note = bytes(head.note)
        self.pieces = head.pieces
        self.memory = memory

    def address(self, piece: Piece) -> int:
        """Of its first byte in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + piece.offset


class Receiver:
    """The end of the line in the process."""

    def __init__(self, line: socket.socket, slots: Sequence[int]) -> None:
        self._line = line
        self._slots = tuple(slots)
        self._memory: dict[int, mmap.mmap] = {}
        self._parent = os.getppid()
        self.has_closing = False
        """Whether the sender ended the line by itself."""

    def blocks(self) -> Iterator[SharedBlock]:
        """What is handed over, in order, until the sender is done or gone."""
        while True:
            ready, _, _ = select.select([self._line], [], [], _POLL_INTERVAL_S)
            if not ready:
                if os.getppid() != self._parent:
                    return
                continue
            try:
                received = self._line.recv(1)
            except ConnectionError:
                return
            if not received or received[0] == CLOSING:
                self.has_closing = bool(received)
                return
            yield SharedBlock(received[0], self._mapped(received[0]))

    def is_called(self, seconds: float) -> bool:
        """Wait so long for what comes next; whether it is there: another parcel, or the end of the line."""
        return bool(select.select([self._line], [], [], seconds)[0])

    def answer(self, block: SharedBlock, reply: object) -> None:
        """Hand the slot back, with what it held where there is no reply."""
        if reply is not None:
            written = msgspec.json.encode(reply)[: LEAST_BYTES - FIRST]
            block.memory[FIRST : FIRST + len(written)] = written
            START.pack_into(block.memory, 0, FIRST, len(written))
        try:
            self._line.sendall(bytes([block.slot]))
        except OSError:
            return  # The sender is gone; what it handed over is done.

    def _mapped(self, slot: int) -> mmap.mmap:
        size = os.fstat(self._slots[slot]).st_size
        known = self._memory.get(slot)
        if known is None or len(known) != size:
            self._memory[slot] = known = mmap.mmap(self._slots[slot], size)
        return known


def run(arguments: Sequence[str], serve: Callable[[Receiver, Sequence[str]], None]) -> None:
    """Serve the line and the slots that `sender.Sender` named after `--`, with the arguments before it."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    cut = list(arguments).index("--")
    line, *slots = (int(word) for word in arguments[cut + 1 :])
    serve(Receiver(socket.socket(fileno=line), slots), arguments[:cut])

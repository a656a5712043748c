"""The training thread's side of a handover.

Owns the slots, the process and the line. Rules: the thread copies once and does not wait: where no slot is
free, nothing is taken and the caller counts it. From a GPU the copy goes into pinned memory behind an event
and is handed over when the device has passed it. Must not know what the tensors mean.
"""

import mmap
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final

import msgspec
import torch
from torch import Tensor

from overwatch.platform import allocate, memory_file
from overwatch_rl.handover.receiver import CLOSING, FIRST, LEAST_BYTES, START, Head, Piece

_NAMES: Final = {
    getattr(torch, name): name
    for name in (
        "bool", "uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "bfloat16",
        "float32", "float64",
    )
}  # fmt: skip


class _Slot:
    """One file in memory, and the views of it that the newest layout needs."""

    def __init__(self) -> None:
        self.file: IO[bytes] = memory_file("overwatch-handover")
        self.is_free = True
        self.event: torch.cuda.Event | None = None
        self._memory = mmap.mmap(-1, 1)
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._staged = self._bytes
        self._layout: dict[str, Piece] = {}
        self._views: list[Tensor] = []

    def fill(self, note: object, tensors: Mapping[str, Tensor]) -> None:
        """Copy; raises `OSError` when there is no memory for it."""
        layout, end = _layout(tensors)
        head = msgspec.json.encode(Head(note=msgspec.Raw(msgspec.json.encode(note)), pieces=layout))
        has_grown = self._grow(end + len(head))
        is_far = any(tensor.is_cuda for tensor in tensors.values())
        if has_grown or layout != self._layout:
            self._staged = torch.empty(end, dtype=torch.uint8, pin_memory=True) if is_far else self._bytes
            self._layout = layout
            self._views = [_view(self._staged, piece, tensors[name]) for name, piece in layout.items()]
        if self._views:
            sources = [tensor.detach() for tensor in tensors.values()]
            torch._foreach_copy_(self._views, sources, non_blocking=is_far)
        if is_far:
            self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # theirs
            self.event.record()
        self._memory[end : end + len(head)] = head
        START.pack_into(self._memory, 0, end, len(head))

    def settle(self, *, wait: bool) -> bool:
        """Whether everything lies in the slot; with `wait` it does."""
        if self.event is None:
            return True
        if wait:
            self.event.synchronize()
        elif not self.event.query():  # type: ignore[no-untyped-call]  # theirs
            return False
        self.event = None
        end = len(self._staged)
        self._bytes[FIRST:end] = self._staged[FIRST:]
        return True

    def answer(self) -> bytes:
        """What the process left."""
        start, size = START.unpack_from(self._memory, 0)
        return bytes(self._memory[start : start + size])

    def _grow(self, size: int) -> bool:
        if len(self._memory) >= size and len(self._bytes):
            return False
        whole = max(LEAST_BYTES, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        allocate(self.file.fileno(), whole)
        self._memory = mmap.mmap(self.file.fileno(), whole)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        return True


def _layout(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Piece], int]:
    """Where each lies, and where the last one ends."""
    pieces, at = {}, FIRST
    for name, tensor in tensors.items():
        kind = _NAMES.get(tensor.dtype)
        if kind is None:
            raise ValueError(f"{name} is of {tensor.dtype}; hand over one of {', '.join(_NAMES.values())}")
        size = tensor.numel() * tensor.element_size()
        pieces[name] = Piece(dtype=kind, shape=tuple(tensor.shape), offset=at, size=size)
        at += -(-size // FIRST) * FIRST
    return pieces, at


def _view(memory: Tensor, piece: Piece, like: Tensor) -> Tensor:
    return memory[piece.offset : piece.offset + piece.size].view(like.dtype).view(piece.shape)


class Sender:
    """A process with slots."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        slots: int = 1,
        notes: int = 0,
        kept: Sequence[int] = (),
    ) -> None:
        """Start `python -m module`, with slots for tensors and others for notes without any.

        Descriptors in `kept` stay open in it. Raises `OSError`.
        """
        self._slots = [_Slot() for _ in range(slots + notes + 1)]
        self._wide, self._narrow, self._first = self._slots[:slots], self._slots[slots:-1], self._slots[-1]
        self._handed: list[_Slot] = []
        """What is not finished, in the order in which it was handed over."""
        self._words = [sys.executable, "-P", "-m", module, *arguments, "--"]
        self._start(kept)

    def _start(self, kept: Sequence[int]) -> None:
        self._line, theirs = socket.socketpair()
        passed = [theirs.fileno(), *(slot.file.fileno() for slot in self._slots)]
        words = [*self._words, *(str(fd) for fd in passed)]
        with theirs:
            self._process = subprocess.Popen(
                words,
                pass_fds=[*passed, *kept],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._line.setblocking(False)
        self._is_gone = False

    def restart(self, note: object, kept: Sequence[int] = ()) -> None:
        """Start the process again after it was killed, and hand over what it did not finish, after a note.

        Raises `OSError`.
        """
        self._process.kill()
        self._process.wait()
        self._line.close()
        unfinished = [slot for slot in self._handed if slot is not self._first]
        self._start(kept)
        self._handed = []
        self._first.fill(note, {})
        for slot in (self._first, *unfinished):
            self._hand(slot)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether the process ended before it was asked to."""
        return self._is_gone

    @property
    def is_whole(self) -> bool:
        """Whether all that was handed over is finished."""
        return not self._handed

    @property
    def is_busy(self) -> bool:
        """Whether the process has something to finish."""
        return not self._is_gone and not self.is_whole

    def offer(self, note: object, tensors: Mapping[str, Tensor]) -> bool:
        """Hand over a note with tensors, or answer that there is no room now. Raises `OSError`."""
        among = self._wide if tensors or not self._narrow else self._narrow
        slot = next((slot for slot in among if slot.is_free), None)
        if slot is None or self._is_gone:
            return False
        slot.fill(note, tensors)
        self._hand(slot)
        return True

    def answers(self, timeout: float = 0.0) -> list[bytes]:
        """What has been finished, an answer each; waits that long for the first."""
        until = time.monotonic() + timeout
        for slot in self._slots:
            if slot.event is not None:
                self._post(slot, wait=timeout > 0)
        found: list[bytes] = []
        while self.is_busy:
            left = 0.0 if found else max(0.0, until - time.monotonic())
            if not select.select([self._line], [], [], left)[0]:
                break
            found += self._read()
        return found

    def close(self, timeout: float) -> list[bytes]:
        """Finish what was handed over, end the process; the last answers."""
        until, found = time.monotonic() + timeout, []
        while self.is_busy and time.monotonic() < until:
            found += self.answers(max(0.001, until - time.monotonic()))
        self._send(CLOSING)
        try:
            self._process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._line.close()
        for slot in self._slots:
            slot.file.close()
        return found

    def _hand(self, slot: _Slot) -> None:
        slot.is_free = False
        self._handed.append(slot)
        self._post(slot, wait=False)

    def _post(self, slot: _Slot, *, wait: bool) -> None:
        if slot.settle(wait=wait):
            self._send(self._slots.index(slot))

    def _send(self, word: int) -> None:
        try:
            self._line.send(bytes([word]))
        except OSError:
            self._is_gone = True

    def _read(self) -> list[bytes]:
        try:
            words = self._line.recv(len(self._slots))
        except OSError:
            words = b""
        if not words:
            self._is_gone = True
        found = []
        for word in words:
            slot = self._slots[word]
            found.append(slot.answer())
            slot.is_free = True
            self._handed.remove(slot)
        return found

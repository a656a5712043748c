"""How far followed runs are delivered, so that following that begins again goes on from there.

Owns a small file a run and collector. Rules: what is sent together lies in that file before it is sent, and
until it was answered: whoever begins again sends the same bytes again first, and the collector knows by their
numbers what it has. A file that was read is known by the numbers that it had. What cannot be read or written
is no memory. Must not know rows.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from overwatch.follow.files import Reached
from overwatch.recordings.checkpoints import write_whole
from overwatch.regular import read_regular
from overwatch.simulate.delivery import Reported, Sender

_MOST_BYTES: Final = 64 << 20


class Remembered(msgspec.Struct, frozen=True):
    """How far a run is delivered."""

    files: tuple[Reached, ...]
    is_over: bool
    """Whether its end is, too."""
    updates: int = 0
    """How many, of which a file may not have the oldest any more."""
    sent: tuple[Reported, ...] = ()
    """Requests that bring it there, and may not have been answered."""


_remembered: Final = msgspec.msgpack.Decoder(Remembered).decode


class Note(NamedTuple):
    """What is remembered with a request."""

    path: Path
    """Of the run's memory."""
    before: Remembered | None
    """What is true from when the first of those that are sent together is sent on; of the others `None`."""
    after: Remembered | None
    """What is true when the last of them was answered; of the others `None`."""


class Memory:
    """What one collector has."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder, self._endpoint = folder, endpoint

    def recall(self, path: Path) -> Remembered | None:
        """What a run's memory holds; `None` where it cannot be read."""
        try:
            return _remembered(read_regular(path, _MOST_BYTES))
        except (OSError, msgspec.MsgspecError):
            return None

    def file(self, run_id: str, files: Sequence[Path]) -> Path:
        """Where the memory of a run of these files lies."""
        first = str(min(files, default=Path()).resolve())
        owner = hashlib.blake2b(repr((self._endpoint, run_id, first)).encode(), digest_size=16)
        return self._folder / f"{owner.hexdigest()}.state"


def together(requests: Sequence[Reported], path: Path, after: Remembered) -> list[Reported]:
    """Requests that are sent together, with what to remember before and after."""
    last = len(requests) - 1
    before = msgspec.structs.replace(after, sent=tuple(requests))
    notes = (
        Note(path, before if place == 0 else None, after if place == last else None)
        for place in range(len(requests))
    )
    return [msgspec.structs.replace(one, note=note) for one, note in zip(requests, notes, strict=True)]


class RememberingSender(Sender):
    """Delivers requests, and remembers on its own thread what was sent and what was answered."""

    def take(self, timeout_s: float) -> Reported | None:
        """The oldest request; what is sent together with it is remembered first."""
        request = super().take(timeout_s)
        if request is not None and isinstance(request.note, Note):
            _keep(request.note.path, request.note.before)
        return request

    def landed(self, request: Reported, rejected: int) -> None:
        """The collector has it, but for so many records."""
        super().landed(request, rejected)
        if isinstance(request.note, Note):
            _keep(request.note.path, request.note.after)

    def lost(self, request: Reported, reason: str) -> None:
        """The collector refuses it: following goes on behind it."""
        super().lost(request, reason)
        if isinstance(request.note, Note):
            _keep(request.note.path, request.note.after)


def _keep(path: Path, found: Remembered | None) -> None:
    if found is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, msgspec.msgpack.encode(found))

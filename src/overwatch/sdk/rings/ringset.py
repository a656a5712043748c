"""A trainer's two rings: numbers and facts, and the helper that looks after what waits for room.

Owns where the files lie. Rules: `put` never waits and makes no system call while there is room; facts never
give way to numbers; a forked child writes nothing. Must not know who reads.
"""

import _thread
import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from overwatch.platform import SHARED_MEMORY
from overwatch.sdk.conflate import Conflator
from overwatch.sdk.frames import Frame
from overwatch.sdk.rings.file import create
from overwatch.sdk.rings.producer import NumberProducer, RingProducer
from overwatch.sdk.rings.records import Form, encode, entry, is_fact
from overwatch.sdk.rings.writer import Entry, RingWriter

NUMBERS: Final = "numbers.ring"
FACTS: Final = "facts.ring"
_NUMBERS_SHARE: Final = 2
"""A record that is larger than this part of its ring might never fit."""
_FACTS_SHARE: Final = 4
_TOGETHER: Final = 32
"""Updates of a full ring that are folded at once: one of so many calls pays for all."""
_FORM_LIMIT: Final = 8192
_POLL_S: Final = (0.002, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """Sizes of a process's rings, in bytes; files are whole pages of 4 KiB, at least three besides forms."""

    numbers_bytes: int = 4 << 20
    """The file for updates and columns."""
    facts_bytes: int = 2 << 20
    """The file for everything that must arrive."""
    forms_bytes: int = 64 << 10
    """Of the file for numbers, what is kept for names."""
    backlog_bytes: int = 4 << 20
    """Facts held in memory while their ring is full."""


class BusyError(RuntimeError):
    """Another thread writes; later it will not."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what was handed in: `accepted` is `published` plus `waiting` plus what was dropped."""

    accepted: int
    published: int
    """In the rings, read or not; each folded update counts as one."""
    waiting: int
    """Held in this process."""
    dropped: dict[str, int]


class RingSet:
    """The writing side. Raises `OSError` when no folder has room; `name` must be new.

    Preset and configuration are the run's: updates that are folded are judged by them.
    """

    def __init__(
        self, name: str, limits: RingLimits | None = None, *, preset: str | None = "ppo",
        config: Mapping[str, str] | None = None, folders: Sequence[Path] | None = None,
        shared: bool = True,
    ) -> None:  # fmt: skip
        """Rings that are not `shared` lie in this process's memory, for a reader in it."""
        limits = limits or RingLimits()
        if not name or "/" in name or "\0" in name:
            raise ValueError(f"a ring's name is one part of a path, not {name!r}")
        if shared:
            self.path, numbers, facts = _place(name, limits, places() if folders is None else folders)
        else:
            self.path, numbers, facts = Path(name), *_created(Path(name), limits, shared=False)
        """What a reader is given; of rings without files it names nothing."""
        self._forms: dict[int, Form] = {}
        self._is_over = False
        self._last: Account | None = None
        self._idle: list[None] = [None]
        self.facts = RingProducer(facts, self._wake, limits.backlog_bytes)
        conflator = Conflator(preset, config, together=_TOGETHER)
        self.numbers = NumberProducer(numbers, self._wake, conflator, self._forms.__getitem__)
        self._both = (self.facts, self.numbers)

    def put(self, frame: Frame) -> None:
        """Hand in a frame."""
        record = entry(frame)
        (self.facts if is_fact(frame) else self.numbers).put(record.tag, record.payload)

    def offer(self, record: Entry, *, is_fact: bool) -> bool:
        """Hand in a large record where there is room now; whether it is done with."""
        return (self.facts if is_fact else self.numbers).offer(record)

    def count_drop(self, reason: str) -> None:
        """Count a record that could not even be made."""
        self.facts.set_aside(reason)

    def add_form(self, form: Form) -> int | None:
        """Make a form known; its number, `None` when there is no room.

        Raises `BusyError` when another thread writes just now.
        """
        data = encode(form)
        ring = self.numbers.ring
        if len(data) > _FORM_LIMIT:
            return None
        try:
            del ring.token[0]
        except IndexError:
            raise BusyError from None
        try:
            number = ring.add_form(data)
        finally:
            ring.token.append(None)
        if number is not None:
            self._forms[number] = form
        return number

    def account(self) -> Account:
        """What became of everything so far; exact while nothing writes, and the last word after `close`."""
        if self._last is not None:
            return self._last
        accepted = sum(producer.accepted for producer in self._both)
        waiting = sum(producer.waiting for producer in self._both)
        dropped = sum((producer.ring.file.dropped() for producer in self._both), Counter())
        published = accepted - waiting - dropped.total()
        return Account(accepted=accepted, published=published, waiting=waiting, dropped=dict(dropped))

    def _wake(self) -> None:
        """Something waits for room: let the helper look after it."""
        if not self._idle:
            return
        try:
            del self._idle[0]
        except IndexError:
            return
        try:
            _thread.start_new_thread(self._help, ())
        except RuntimeError:  # no threads any more at exit; `close` writes what waits
            self._idle.append(None)

    def _help(self) -> None:
        """The helper: writes what waits whenever there is room, and never leaves its place taken."""
        pause, longest = _POLL_S
        is_settled = False
        try:
            while not self._is_over and not is_settled:
                time.sleep(pause)
                pause = min(pause * 2, longest)
                is_settled = self._settled()
        except Exception:  # noqa: BLE001, S110 the border of a thread: another helper goes on
            pass
        finally:
            self._idle.append(None)
        if not self._is_over and (self.facts.waits or self.numbers.waits):
            self._wake()

    def _settled(self) -> bool:
        return self.facts.flush() & self.numbers.flush()

    def close(self, timeout_s: float) -> Account:
        """Write what waits as far as the reader makes room within `timeout_s`; the rest is not sent."""
        deadline = time.monotonic() + timeout_s
        while not self._settled() and time.monotonic() < deadline:
            time.sleep(_POLL_S[0])
        self._is_over = True
        mine = [producer for producer in self._both if _take(producer.ring.token, deadline)]
        for producer in mine:
            producer.give_up()
        account = self._last = self.account()
        for producer in mine:
            producer.ring.close()
        return account

    def abandon(self, missed: Callable[[], None] = lambda: None) -> None:
        """In a forked child: these rings are the parent's. Nothing is written nor counted in them any more.

        `missed` is called for each record that is handed in.
        """
        self._is_over = True
        for producer in self._both:
            producer.missed = missed
            producer.ring.closed = True
            producer.ring.limit = 0
            producer.ring.token.clear()

    def unlink(self) -> None:
        """Remove the files, if there are any; a reader that has opened them goes on reading."""
        if self.path.is_absolute():
            remove(self.path)


def remove(path: Path) -> None:
    """Remove the files of a ring set, if they are there."""
    for part in (NUMBERS, FACTS):
        with contextlib.suppress(OSError):
            part_of(path, part).unlink()


def part_of(path: Path, part: str) -> Path:
    """One ring's file of a ring set."""
    return path.with_name(f"{path.name}.{part}")


def places(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders for rings, the best first: memory, then this user's own below the temporary folder.

    `OVERWATCH_RING_DIR` names the only one to use instead.
    """
    if given := env.get("OVERWATCH_RING_DIR"):
        return [Path(given).absolute()]
    own = Path(env.get("TMPDIR") or tempfile.gettempdir()) / f"overwatch-{os.geteuid()}"
    return [SHARED_MEMORY, own]


def _place(name: str, limits: RingLimits, folders: Sequence[Path]) -> tuple[Path, RingWriter, RingWriter]:
    """Both rings in the first folder that has room; raises the last folder's `OSError`."""
    refused = OSError(f"no folder to put the rings {name} in")
    for folder in folders:
        try:
            _enter(folder)
            return folder / name, *_created(folder / name, limits, shared=True)
        except OSError as error:
            refused = error
    raise refused


def _created(path: Path, limits: RingLimits, *, shared: bool) -> tuple[RingWriter, RingWriter]:
    """Both rings, or none of their files; raises `OSError`."""
    numbers = create(part_of(path, NUMBERS), limits.numbers_bytes, limits.forms_bytes, shared=shared)
    try:
        facts = create(part_of(path, FACTS), limits.facts_bytes, 0, shared=shared)
    except OSError:
        part_of(path, NUMBERS).unlink()
        raise
    return RingWriter(numbers, _NUMBERS_SHARE), RingWriter(facts, _FACTS_SHARE)


def _enter(folder: Path) -> None:
    """Make sure that a folder is there and that no other user owns it; raises `OSError`."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_shared = bool(found.st_mode & 0o1000)
    if found.st_uid not in (os.geteuid(), 0) or (found.st_mode & 0o022 and not is_shared):
        raise PermissionError(f"{folder} can be written to by others")


def _take(token: list[None], deadline: float) -> bool:
    """Take a token until `deadline`, at least once."""
    while True:
        try:
            del token[0]
        except IndexError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S[0])
        else:
            return True

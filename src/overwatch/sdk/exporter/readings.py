"""What a look at GPUs gives, and who can look: the words that the sampler and its sources share."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from overwatch.sdk.exporter.lanes import Gpu
from overwatch.sdk.exporter.unread import Unread


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment."""

    numbers: dict[str, float] = {}
    """By catalogue name; what could not be read is left out."""
    throttle: str | None = None
    """Why it is slower than it could be, words joined by commas; `none` where nothing is; `None` untold."""
    lost: bool = False
    """The driver says that the GPU is gone, or that the driver itself is."""


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """An error that the driver told of a GPU."""

    uuid: str
    code: int


class Question(Protocol):
    """A look at one or several GPUs that may hang; asked by one thread, one at a time."""

    def ask(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Readings by UUID: whole ones of `uuids`, of others only what concerns the trainer's process."""
        ...

    @property
    def name(self) -> str:
        """Names its thread."""
        ...


class Source(Protocol):
    """A way to GPUs. Calls may hang; each is made by one thread at a time."""

    @property
    def unread(self) -> Unread:
        """What cannot be read, and why."""
        ...

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew; none where there is no driver. Not to be called while a question is asked."""
        ...

    def questions(self, uuids: frozenset[str]) -> tuple[Question, ...]:
        """Looks that together cover these GPUs; what hangs in one does not hold up another."""
        ...

    def xids(self) -> tuple[Xid, ...]:
        """Errors since it was last asked, without waiting for one."""
        ...

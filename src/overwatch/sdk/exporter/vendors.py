"""The vendors of GPUs, one row each, and the source that is the first of them with a GPU here.

Rules: a machine's GPUs are of one vendor: while one has some, the others' drivers are of no interest, since a
processor may have graphics of its own. Must not know how readings are sent.
"""

import platform
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from overwatch.sdk.exporter import amd, nvml
from overwatch.sdk.exporter.lanes import Gpu
from overwatch.sdk.exporter.readings import Question, Source, Xid
from overwatch.sdk.exporter.unread import Unread


class Apple:
    """No source: what reads Apple's GPUs needs root."""

    def __init__(self, _: int, unread: Unread, system: Callable[[], str] = platform.system) -> None:
        self.unread, self._system = unread, system

    def open(self) -> tuple[Gpu, ...]:
        """None, and why, on a Mac."""
        if self._system() == "Darwin":
            self.unread.missing("the GPU of a Mac gives its readings to root only")
        return ()

    def questions(self, _: frozenset[str]) -> tuple[Question, ...]:
        """None."""
        return ()

    def xids(self) -> tuple[Xid, ...]:
        """None."""
        return ()


Make = Callable[[int, Unread], Source]
VENDORS: Final[dict[str, Make]] = {
    "NVIDIA": lambda pid, unread: nvml.Nvml(pid, unread=unread),
    "AMD": lambda pid, unread: amd.Amd(pid, unread=unread),
    "Apple": Apple,
}
"""In the order in which they are asked."""


class Local:
    """The GPUs of this machine, and `pid`'s share of them."""

    def __init__(self, pid: int, vendors: Iterable[Make] = tuple(VENDORS.values())) -> None:
        self.unread = Unread()
        self._sources = tuple(make(pid, self.unread) for make in vendors)
        self._used: Source | None = None

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew."""
        for source in self._sources:
            gpus = source.open()
            self._used = source if gpus else None
            if gpus:
                return gpus
        return ()

    def questions(self, uuids: frozenset[str]) -> tuple[Question, ...]:
        """One look a GPU."""
        return () if self._used is None else self._used.questions(uuids)

    def xids(self) -> tuple[Xid, ...]:
        """Errors that the driver has reported since the last look."""
        return () if self._used is None else self._used.xids()


def with_files(driver: Path, control: Path) -> tuple[Make, ...]:
    """The vendors, of which NVIDIA's driver is where these files are."""
    nvidia = partial(_nvidia, (driver, control))
    return (nvidia, *(make for name, make in VENDORS.items() if name != "NVIDIA"))


def _nvidia(files: tuple[Path, ...], pid: int, unread: Unread) -> Source:
    return nvml.Nvml(pid, files, unread)

"""NVIDIA's error numbers (Xid): what each means, and what it means for the GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class Kind(Enum):
    """What an error means for the GPU."""

    PROGRAM = "program"
    """The program itself usually made it; the GPU is well."""
    MEMORY = "memory"
    """Its memory lost data that could not be corrected."""
    LOST = "lost"
    """It can no longer be reached."""
    DEVICE = "device"
    """Another fault of the device or its driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One error number."""

    code: int
    kind: Kind
    means: str


_TABLE: Final = (
    Xid(code=8, kind=Kind.DEVICE, means="GPU stopped processing"),
    Xid(code=13, kind=Kind.PROGRAM,
        means="graphics engine exception, usually an illegal access of the program"),
    Xid(code=31, kind=Kind.PROGRAM, means="memory page fault, usually an illegal address of the program"),
    Xid(code=43, kind=Kind.PROGRAM, means="the program's channel was stopped after its fault"),
    Xid(code=45, kind=Kind.PROGRAM, means="the program's channel was removed"),
    Xid(code=48, kind=Kind.MEMORY, means="double-bit memory error"),
    Xid(code=61, kind=Kind.DEVICE, means="internal micro-controller halt"),
    Xid(code=62, kind=Kind.DEVICE, means="internal micro-controller halt"),
    Xid(code=63, kind=Kind.DEVICE, means="memory row or page retired"),
    Xid(code=64, kind=Kind.MEMORY, means="memory row or page could not be retired"),
    Xid(code=74, kind=Kind.DEVICE, means="NVLink error"),
    Xid(code=79, kind=Kind.LOST, means="GPU has fallen off the bus"),
    Xid(code=92, kind=Kind.DEVICE, means="many single-bit memory errors"),
    Xid(code=94, kind=Kind.MEMORY, means="contained memory error"),
    Xid(code=95, kind=Kind.MEMORY, means="uncontained memory error"),
    Xid(code=119, kind=Kind.DEVICE, means="GPU's own processor does not answer"),
    Xid(code=120, kind=Kind.DEVICE, means="GPU's own processor failed"),
    Xid(code=154, kind=Kind.DEVICE, means="the GPU needs an action to recover"),
)  # fmt: skip
XIDS: Final[Mapping[int, Xid]] = MappingProxyType({xid.code: xid for xid in _TABLE})
"""By number."""

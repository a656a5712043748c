"""NVIDIA's error numbers, and what becomes of a GPU, as lines of log. Pure; must not know who heard."""

from typing import Final

from overwatch.events import LogLine, Severity
from overwatch.sdk.exporter.lanes import Lane

SUBSYSTEM: Final = "gpu"

_MEANING: Final = {
    8: "GPU stopped processing",
    13: "graphics engine exception, usually an illegal access by the program",
    31: "memory page fault, usually an illegal address of the program",
    43: "the program's channel was stopped after its fault",
    45: "the program's channel was removed",
    48: "double-bit memory error",
    61: "internal micro-controller halt",
    62: "internal micro-controller halt",
    63: "memory row or page retired",
    64: "memory row or page could not be retired",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "many single-bit memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GPU's own processor does not answer",
    120: "GPU's own processor failed",
    154: "the GPU needs an action to recover",
}
_OF_THE_PROGRAM: Final = frozenset({13, 31, 43, 45})
"""Errors that the program itself usually made; the GPU is well."""


def xid_line(at: int, lane: Lane, code: int) -> LogLine:
    """The line about one Xid."""
    meaning = _MEANING.get(code)
    return LogLine(
        at=at,
        severity=Severity.WARNING if code in _OF_THE_PROGRAM else Severity.CRITICAL,
        subsystem=SUBSYSTEM,
        message=f"Xid {code} on {lane.label}" + (f": {meaning}" if meaning else ""),
        fields={"lane": lane.id, "xid": str(code)},
    )


def lost_line(at: int, lane: Lane) -> LogLine:
    """The line about a GPU that the driver no longer reaches."""
    return LogLine(
        at=at,
        severity=Severity.CRITICAL,
        subsystem=SUBSYSTEM,
        message=f"{lane.label} is lost: the driver no longer reaches it",
        fields={"lane": lane.id, "state": "lost"},
    )


def back_line(at: int, lane: Lane) -> LogLine:
    """The line about a GPU that answers again."""
    return LogLine(
        at=at,
        severity=Severity.INFO,
        subsystem=SUBSYSTEM,
        message=f"{lane.label} answers again",
        fields={"lane": lane.id, "state": "back"},
    )


def unread_line(at: int, node: str, text: str) -> LogLine:
    """The line about something of a machine that is there and cannot be read."""
    return LogLine(
        at=at, severity=Severity.WARNING, subsystem=SUBSYSTEM, message=f"{text} (on {node})",
        fields={"node": node},
    )  # fmt: skip

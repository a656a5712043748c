"""NVIDIA's error numbers, and what becomes of a GPU, as lines of log. Pure; must not know what reads them."""

from typing import Final

from overwatch.catalog.xids import XIDS, Kind
from overwatch.events import LogLine, Severity
from overwatch.sdk.exporter.lanes import Lane

SUBSYSTEM: Final = "gpu"


def xid_line(at: int, lane: Lane, code: int) -> LogLine:
    """The line about one Xid."""
    xid = XIDS.get(code)
    return LogLine(
        at=at,
        severity=Severity.WARNING if xid is not None and xid.kind is Kind.PROGRAM else Severity.CRITICAL,
        subsystem=SUBSYSTEM,
        message=f"Xid {code} on {lane.label}" + ("" if xid is None else f": {xid.means}"),
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

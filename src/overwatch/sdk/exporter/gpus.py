"""The GPUs that a trainer can see, as lanes: who is asked, who is silent, who is gone.

Rules: what cannot be read is absent, never zero; a call that hangs ages its own lane and no other, because
each is asked by a thread of its own and never twice at a time. Must not know how samples are sent.
"""

import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from overwatch.catalog import Scope
from overwatch.catalog.machine import THROTTLE
from overwatch.catalog.xids import XIDS, Kind
from overwatch.events import Column, Event, LogLine, Measured, RunStarted, Severity
from overwatch.sdk.exporter.amd import Amd
from overwatch.sdk.exporter.gpu_sources import Question, Reading, Source, Unread, Xid
from overwatch.sdk.exporter.lanes import Gpu, Lane, LaneMap, VisibleDevices, visible_devices
from overwatch.sdk.exporter.nvml import Nvml
from overwatch.sdk.exporter.probe import Probe, SampleLock

log: Final = logging.getLogger("overwatch.exporter")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLimits:
    """How often is looked, and how long is waited."""

    interval_s: float = 1.0
    """Between two looks."""
    gather_s: float = 0.25
    """How long a look waits for its answers; a later one goes with the next."""
    again_s: float = 5.0
    """Until the driver is asked anew for GPUs that are missing; doubles up to `rarely_s`."""
    rarely_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """The runs that are sampled for."""

    node: str = field(default_factory=socket.gethostname)
    """This machine's host name."""
    pid: int = field(default_factory=os.getppid)
    """The trainer's process; an exporter's parent."""
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The trainer's environment, which names the GPUs it can see."""


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
    "NVIDIA": lambda pid, unread: Nvml(pid, unread=unread),
    "AMD": lambda pid, unread: Amd(pid, unread=unread),
    "Apple": Apple,
}
"""In the order in which they are asked."""


class Local:
    """The GPUs of this machine, and `pid`'s share of them: of the first vendor that has a GPU here.

    A machine's GPUs are of one vendor: while one has some, the others' drivers are of no interest, since a
    processor may have graphics of its own.
    """

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
    makes = VENDORS | {"NVIDIA": lambda pid, unread: Nvml(pid, (driver, control), unread)}
    return tuple(makes.values())


def look_around(trainer: Trainer, within_s: float) -> VisibleDevices:
    """The GPUs that the trainer can see; none where the driver does not answer in time."""
    source = Local(trainer.pid)
    wake_up = threading.Condition()
    probe = Probe("gpus", lambda: visible_devices(source.open(), trainer.env), wake_up)
    with wake_up:
        probe.query()
        wake_up.wait_for(lambda: not probe.busy, within_s)
    answer = probe.take()
    probe.stop()
    return VisibleDevices() if answer is None else answer[1]


def lane_map(trainer: Trainer, started: RunStarted, within_s: float = 3.0) -> LaneMap:
    """What the trainer's words for devices mean, given by the trainer or found out within `within_s`.

    It is made once: a driver that answers later does not move a run's envs to other lanes.
    """
    reported = {label: lane for lane, label in started.lanes.items()}
    return LaneMap(look_around(trainer, within_s), trainer.node, reported)


class Gpus:
    """The lanes of this machine: who is asked, who is silent, who is gone."""

    def __init__(
        self, run: str, trainer: Trainer, limits: SampleLimits, wake_up: threading.Condition
    ) -> None:
        self._run = run
        self._node = trainer.node
        self._limits = limits
        self._wake_up = wake_up
        self._source = Local(trainer.pid)
        self._opening = Probe("gpus", lambda: visible_devices(self._source.open(), trainer.env), wake_up)
        self._xids = Probe("xid", self._source.xids, wake_up)
        self._probes: dict[str, Probe[Mapping[str, Reading]]] = {}
        self._lanes: dict[str, Lane] = {}
        self._locks: dict[str, SampleLock] = {}
        self._unread_lock = SampleLock(run, "unread")
        self._requested: frozenset[str] = frozenset()
        self._lost: set[str] = set()
        self._open_at = 0.0
        self._pause_s = limits.again_s

    def query(self) -> list[Probe[object]]:
        """Begin to ask; what is waited for."""
        opened = self._opening.take()
        if opened is not None:
            self._settle(opened[1])
        if self._lost >= self._requested:
            self._open_again()
        if self._opening.busy:
            return [self._opening]
        self._xids.query()
        return [probe for probe in self._probes.values() if probe.query()]

    def take(self, at: int) -> list[Event]:
        """What has been answered: readings of this look together, late ones by themselves."""
        stated: list[Event] = []
        received = self._xids.take()
        known: dict[str, Reading] = {}
        for probe in self._probes.values():
            answer = probe.take()
            if answer is None:
                continue
            stated += self._gone(at, answer[1])
            present = {uuid: reading for uuid, reading in answer[1].items() if reading.numbers}
            if answer[0] < at:
                stated += self._measured(answer[0], present)
            else:
                known.update(present)
        stated += self._measured(at, known) + self._errors(at, () if received is None else received[1])
        return stated + self._unread_lines(at)

    def stop(self) -> None:
        """End all threads."""
        probes: list[Probe[object]] = [self._opening, self._xids, *self._probes.values()]
        for probe in probes:
            probe.stop()
        for lock in (*self._locks.values(), self._unread_lock):
            lock.release()

    def _unread_lines(self, at: int) -> list[Event]:
        """A line for each thing that cannot be read, by one process of this machine; all are logged."""
        fresh = self._source.unread.take()
        for note in fresh:
            log.log(logging.WARNING if note.trouble else logging.INFO, "%s", note.text)
        troubles = [note.text for note in fresh if note.trouble]
        if not troubles or not self._unread_lock.held():
            return []
        return [unread_line(at, self._node, text) for text in troubles]

    def _open_again(self) -> None:
        """Look for GPUs where there are none left to ask; never while one of them is being asked."""
        busy = self._xids.busy or any(probe.busy for probe in self._probes.values())
        if busy or time.monotonic() < self._open_at or not self._opening.query():
            return
        self._open_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._limits.rarely_s)

    def _settle(self, seen: VisibleDevices) -> None:
        """Ask the GPUs that were found; those that are not found any more stay silent."""
        for probe in self._probes.values():
            probe.stop()
        self._lanes = {**self._lanes, **{lane.id: lane for lane in seen.lanes}}
        for uuid in self._lanes:
            self._locks.setdefault(uuid, SampleLock(self._run, uuid))
        self._requested = frozenset(lane.id for lane in seen.lanes)
        questions = self._source.questions(self._requested)
        self._probes = {question.name: self._probe(question) for question in questions}

    def _probe(self, question: Question) -> Probe[Mapping[str, Reading]]:
        def query() -> Mapping[str, Reading]:
            return question.query(frozenset(uuid for uuid, lock in self._locks.items() if lock.held()))

        return Probe(question.name, query, self._wake_up)

    def _gone(self, at: int, readings: Mapping[str, Reading]) -> list[Event]:
        """A line for each GPU that was lost with this look, or that is back."""
        lost = {uuid for uuid, reading in readings.items() if reading.lost}
        back = {uuid for uuid, reading in readings.items() if not reading.lost} & self._lost
        new = lost - self._lost
        self._lost = (self._lost | new) - back
        if not self._lost:
            self._pause_s = self._limits.again_s
        held = [(uuid, uuid in lost) for uuid in sorted(new | back) if self._locks[uuid].held()]
        return [(lost_line if gone else back_line)(at, self._lanes[uuid]) for uuid, gone in held]

    def _errors(self, at: int, received: tuple[Xid, ...]) -> list[Event]:
        known = [xid for xid in received if xid.uuid in self._lanes and self._locks[xid.uuid].held()]
        return [xid_line(at, self._lanes[xid.uuid], xid.code) for xid in known]

    def _measured(self, at: int, readings: Mapping[str, Reading]) -> list[Event]:
        """One measurement of the lanes that report why they are slow, one of those that do not."""
        groups: dict[bool, list[str]] = {}
        for uuid, reading in readings.items():
            if uuid in self._lanes:
                groups.setdefault(reading.throttle is None, []).append(uuid)
        return [self._one(at, {uuid: readings[uuid] for uuid in group}) for group in groups.values()]

    def _one(self, at: int, readings: Mapping[str, Reading]) -> Measured:
        lanes = [self._lanes[uuid] for uuid in readings]
        names = dict.fromkeys(name for reading in readings.values() for name in reading.numbers)
        values = {
            name: Column.of([reading.numbers.get(name, float("nan")) for reading in readings.values()])
            for name in names
        }
        words = [reading.throttle for reading in readings.values()]
        if None not in words:
            values[THROTTLE.name] = Column.of_labels(words)
        values["label"] = Column.of_labels([lane.label for lane in lanes])
        values["node"] = Column.of_labels([self._node] * len(lanes))
        keys = {"gpu_id": Column.of_labels([lane.id for lane in lanes])}
        return Measured(at=at, scope=Scope.GPU, values=values, keys=keys)


SUBSYSTEM: Final = "gpu"


def xid_line(at: int, lane: Lane, code: int) -> LogLine:
    """The line about one of NVIDIA's error numbers."""
    xid = XIDS.get(code)
    is_of_program = xid is not None and xid.kind is Kind.PROGRAM
    text = f"Xid {code} on {lane.label}" + ("" if xid is None else f": {xid.means}")
    fields = {"lane": lane.id, "xid": str(code)}
    return _line(at, Severity.WARNING if is_of_program else Severity.CRITICAL, text, fields)


def lost_line(at: int, lane: Lane) -> LogLine:
    """The line about a GPU that the driver no longer reaches."""
    text = f"{lane.label} is lost: the driver no longer reaches it"
    return _line(at, Severity.CRITICAL, text, {"lane": lane.id, "state": "lost"})


def back_line(at: int, lane: Lane) -> LogLine:
    """The line about a GPU that answers again."""
    return _line(at, Severity.INFO, f"{lane.label} answers again", {"lane": lane.id, "state": "back"})


def unread_line(at: int, node: str, text: str) -> LogLine:
    """The line about something of a machine that is there and cannot be read."""
    return _line(at, Severity.WARNING, f"{text} (on {node})", {"node": node})


def _line(at: int, severity: Severity, message: str, fields: dict[str, str]) -> LogLine:
    return LogLine(at=at, severity=severity, subsystem=SUBSYSTEM, message=message, fields=fields)

"""One look a second at this machine: its host, and the GPUs that the trainer can see.

Rules: a look waits a moment for its answers, and never for one that was asked before; each thing is sampled
by one process of this machine for each run. Must not know how samples are sent.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Final

from overwatch.catalog import Scope
from overwatch.catalog.processes import SUBSYSTEM, Busy, fields_of
from overwatch.events import Event, LogLine, Measured, Severity, scalars
from overwatch.sdk.exporter.gpus import Gpus, SampleLimits, Trainer
from overwatch.sdk.exporter.host import Disk, Host, Processes
from overwatch.sdk.exporter.probe import Probe, SampleLock

PROCESSES_S: Final = 10.0
"""From one list of processes to the next: to read them all costs more than the rest of a look."""


class Sampler:
    """Samples into `emit` from threads of its own."""

    def __init__(
        self,
        run: str,
        emit: Callable[[Event], None],
        trainer: Trainer | None = None,
        limits: SampleLimits | None = None,
    ) -> None:
        """`run` is shared by all processes of the run: its id, or what they join by until they have one."""
        self._emit = emit
        self._limits = limits or SampleLimits()
        self._wake_up = threading.Condition()
        self._stopped = threading.Event()
        self._host_lock = SampleLock(run, "host")
        self._host = Probe("host", Host().read, self._wake_up)
        self._processes = Probe("processes", Processes().read, self._wake_up)
        self._processes_due = 0.0
        trainer = trainer or Trainer()
        disk = Disk(trainer.pid)
        self.saved = disk.saved
        """The run saved a checkpoint at this path."""
        self._disk = Probe("disk", disk.read, self._wake_up)
        self._gpus = Gpus(run, trainer, self._limits, self._wake_up)
        begin = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=begin, args=(self._run,), name="overwatch-sampler", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a sample that is being taken is not waited for."""
        self._stopped.set()
        self._host.stop()
        self._processes.stop()
        self._disk.stop()
        self._gpus.stop()
        self._host_lock.release()

    def _run(self) -> None:
        self._gpus.query()
        due = time.monotonic() + self._limits.interval_s
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._limits.interval_s, time.monotonic())
            self._look()

    def _look(self) -> None:
        """Query everything that has no query in flight, and return what has come."""
        at = time.time_ns()
        requested: list[Probe[object]] = list(self._gpus.query())
        if self._host_lock.held():
            requested += [probe for probe in (self._host, self._disk) if probe.query()]
            if time.monotonic() >= self._processes_due and self._processes.query():
                self._processes_due = time.monotonic() + PROCESSES_S
        with self._wake_up:
            self._wake_up.wait_for(lambda: not any(probe.busy for probe in requested), self._limits.gather_s)
        host = self._host.take()
        stated: list[Event] = []
        if host is not None and host[1]:
            disk = self._disk.take()
            stated.append(_of_host(at, (host[0], host[1] if disk is None else {**host[1], **disk[1]})))
        busy = self._processes.take()
        if busy is not None and busy[1]:
            stated.append(_of_processes(at, busy))
        stated += self._gpus.take(at)
        for event in stated:
            if not self._stopped.is_set():
                self._emit(event)


def _of_processes(at: int, answer: tuple[int, tuple[Busy, ...]]) -> LogLine:
    return LogLine(
        at=min(at, answer[0]), severity=Severity.INFO, subsystem=SUBSYSTEM, message="busiest processes",
        fields=fields_of(answer[1]),
    )  # fmt: skip


def _of_host(at: int, answer: tuple[int, dict[str, float]]) -> Measured:
    return Measured(at=min(at, answer[0]), scope=Scope.HOST, values=scalars(answer[1]))

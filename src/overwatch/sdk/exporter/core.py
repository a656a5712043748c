"""The exporter: reads the trainer's rings, encodes what is in them, delivers it, and accounts for all of it.

Runs as a process of its own or, where none can be had, as a thread of the trainer. Rules: it ends when the
trainer asks for it or is gone, within the deadline it is given, even if the collector never answers; what was
not delivered by then stays in the spool. Must not know how the trainer's shutdown comes.
"""

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from overwatch.delivery.destination import DEFAULT_HTTP, Destination, destination
from overwatch.delivery.sender import DeliveryLog, Sender
from overwatch.delivery.transport import OtlpTransport
from overwatch.events import CheckpointSaved, EnvCrashed, Event, NonFiniteSeen, RunFinished, RunStateChanged
from overwatch.journal import Signal
from overwatch.sdk.exporter.batch_encoder import INVALID, REPORT_S, BatchEncoder, Place, Ring, started
from overwatch.sdk.exporter.gpus import Trainer, lane_map
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.record_events import global_envs, is_plain, unpacked, weight
from overwatch.sdk.exporter.resource import host_name, resource, revision
from overwatch.sdk.exporter.sampler import Sampler
from overwatch.sdk.exporter.spool import Spool, SpoolMeta, spool_folder, spool_root
from overwatch.sdk.frames import Hello, Progress, Rolled, SpanEnded, Update
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.source import Item, RingSource
from overwatch.sdk.trainer_env import env_of

log: Final = logging.getLogger("overwatch.exporter")

NOT_SENT: Final = "not_sent"
"""Why updates are gone that a killed trainer had folded and not yet written."""
WINDOW_S: Final = 0.1
"""How long numbers gather into one record: ten a second at most."""
SEND_S: Final = 0.3
"""How long records gather into one request, unless one of them is urgent: about three requests a second."""
_RINGS: Final = (Ring.NUMBERS, Ring.FACTS)
_BUSY_S: Final = 0.01
_IDLE_S: Final = WINDOW_S
_LEAST_S: Final = 0.001
_MUCH: Final = 512 << 10
"""Bytes of one look into the rings after which the next one comes soon: the ring holds eight times that."""
_STOP_S: Final = 0.05
_LATE_S: Final = 1.0
"""With less time than this the exporter of a short trainer has hardly begun."""
EXIT_S: Final = 5.0
"""How long the rest may take after the trainer's exit, where its end is put right or its exporter is late."""
_READ: Final = 2048

_URGENT: Final = (EnvCrashed, NonFiniteSeen, RunStateChanged, RunFinished)
"""What is sent with the window that holds it."""
FIRST_S: Final = 1.0
MOST_S: Final = 8.0
"""What the exporter has read by then lies in the trainer's rings alone, not on disk."""
Report: TypeAlias = Callable[[Progress], None]


class ShutdownSignal(ABC):
    """How the trainer's end is seen."""

    is_exit = False
    """Whether the trainer closed because its process ends, which then lasts longer than the close."""

    @abstractmethod
    def wait(self, timeout_s: float) -> float | None:
        """Wait so long; when to be done (monotonic seconds), `None` while the trainer goes on."""

    def end(self, known: RunFinished | None) -> RunFinished | None:  # noqa: ARG002 for subclasses that know more
        """The end that the trainer did not send, or a better one than it knew.

        Where it is an exit this waits for the end of the process.
        """
        return None


class Backlog:
    """When what gathered leaves for the spool while earlier requests still wait there.

    With nothing before it, it leaves at once. Behind a backlog it waits for company, each time twice as long:
    whatever a collector can take, the number of requests falls below it, and what is shown of the run does
    not grow older and older. Nothing arrives later by that, since what is in the spool goes first.
    """

    def __init__(self) -> None:
        self._due = 0.0
        self._wait_s = FIRST_S

    def is_due(self, now: float, *, is_behind: bool) -> bool:
        """Whether what gathered leaves now; `is_behind` while the spool is not empty."""
        return not is_behind or now >= self._due

    def left(self, now: float, *, is_behind: bool) -> None:
        """Note that it left, behind earlier requests or not."""
        self._wait_s = min(self._wait_s * 2, MOST_S) if is_behind else FIRST_S
        self._due = now + self._wait_s


class Exporter:
    """Everything between the rings and the collector."""

    def __init__(
        self, hello: Hello, source: RingSource, spool: Spool, report: Report,
        delivers: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`report` gets each account, `delivers` is called when something has reached the collector."""
        self._hello, self._source, self._spool, self._report = hello, source, spool, report
        self._delivers = delivers
        env, node = env_of(hello), host_name()
        found = revision(hello.folder, env)
        trainer = Trainer(node=node, pid=hello.pid, env=env)
        self._lanes = lane_map(trainer, hello.started)
        described = resource(hello, found, node)
        ways = destinations(hello.endpoint, hello.otlp_env)
        shown = None if hello.quiet else ways[Signal.LOGS].shown
        self._sender = Sender(spool, lambda: OtlpTransport(ways), DeliveryLog(shown))
        instruments = Instruments(described, spool, frozenset(ways), env)
        self._collect_s = instruments.interval_s
        stated = max(spool.next_seq - 1, source.stated)
        self._encoder = BatchEncoder(described, spool, instruments, hello.started, stated)
        self._encoder.fit(spool.room)
        self._before = spool.spooled
        self._malformed = 0
        self._in_trouble = False
        self._poison = 0
        """Records that could be decoded and not sent."""
        self._accounting = threading.Lock()
        self._is_final = False
        """The account is the last: nothing is taken any more, and the trainer may go."""
        self._finished: RunFinished | None = None
        """How the trainer itself ended."""
        self._items: list[Item] = []
        self._is_urgent = False
        """Something gathered that must not wait."""
        self._backlog = Backlog()
        self._due = self._send_at = self._drops_at = time.monotonic()
        self._collect_at = self._due + self._collect_s
        if not stated:
            self._encoder.describe(hello.started, hello.run_id)
            self._emit(started(hello, node=node, sha=found.sha, dirty=found.dirty))
            self._export()
        self._sampler = Sampler(hello.join or hello.run_id, self._emit, trainer) if hello.sample else None

    def run(self, shutdown: ShutdownSignal) -> None:
        """Work until the trainer is done; no thread is left to work afterwards, whatever is raised."""
        try:
            self._run(shutdown)
        finally:
            if self._sampler is not None:
                self._sampler.stop()
            self._sender.stop(_STOP_S)

    def _run(self, shutdown: ShutdownSignal) -> None:
        self._sender.start(self._progressed)
        if self._sampler is not None:
            self._sampler.start()
        deadline, pause = None, _BUSY_S
        while deadline is None:
            left = max(self._due - time.monotonic(), _LEAST_S) if self._items else pause
            deadline = shutdown.wait(min(pause, left))
            pause = _BUSY_S if self._read() > _MUCH else min(pause * 1.5, _IDLE_S)
            if time.monotonic() >= self._due:
                self._close_window()
        self._finish(deadline, shutdown)

    def _read(self) -> int:
        """Take what the rings hold; how many bytes that were."""
        items = self._source.read(_READ)
        for item in items:
            # To let go of a record is to let go of all before it in its ring.
            if self._items and self._items[-1].ring == item.ring and not self._items[-1].upto:
                self._items.pop()
            self._items.append(item)
            if item.sequence > self._before.get(_RINGS[item.ring].value, 0):
                self._take(item)
            if self._encoder.is_full:
                self._export()
        return sum(item.size for item in items)

    def _take(self, item: Item) -> None:
        place, counted = Place(_RINGS[item.ring], item.sequence), item.count
        try:
            if isinstance(item.content, Update) and is_plain(item.content):
                self._encoder.take_update(item.content, place, size=item.size)
                return
            if isinstance(item.content, SpanEnded):
                self._encoder.take_span(item.content, place, size=item.size)
                return
            events, is_rolled = unpacked(item.content, self._hello.words), isinstance(item.content, Rolled)
            for event in events:
                known = self._known(event)
                self._finished = known if isinstance(known, RunFinished) else self._finished
                self._is_urgent |= isinstance(known, _URGENT)
                counts, counted = counted, 0
                size = weight(event) if is_rolled else item.size // len(events)
                self._encoder.take(known, place, size=size, counted=counts, is_rolled=is_rolled)
        except Exception as error:  # noqa: BLE001 the border: a record must not end the export of the others
            self._poison += 1
            if self._poison == 1:
                log.warning("a record cannot be exported: %s: %s", type(error).__name__, error)
            self._encoder.skip(place, counted=counted, lost=counted)
            return
        if counted:  # Of a rollout in which no episode ended.
            self._encoder.skip(place, counted=counted, lost=0)

    def _known(self, event: Event) -> Event:
        """A trainer's event with the names that its envs and lanes have in the whole run."""
        if isinstance(event, CheckpointSaved) and self._sampler is not None:
            self._sampler.saved(event.path)
        return self._lanes.translate(global_envs(event, self._hello.started.env_offset))

    def _emit(self, event: Event) -> None:
        self._encoder.emit(self._lanes.translate(event))

    def _close_window(self) -> None:
        """A tenth of a second is over."""
        now = time.monotonic()
        self._due = now + WINDOW_S
        if now >= self._drops_at:
            self._drops_at = now + REPORT_S
            self._encoder.report_drops(self._dropped())
        if now >= self._collect_at:
            self._collect_at = now + self._collect_s
            self._encoder.collect()
        if self._encoder.is_empty and not self._items and self._source.malformed == self._malformed:
            self._emit_trouble()
        elif self._is_due(now):
            self._export()
        else:
            self._encoder.close_window()

    def _is_due(self, now: float) -> bool:
        """Whether what gathered goes to the spool; with a backlog there it waits longer."""
        is_behind = not self._spool.is_empty
        is_next = is_behind or self._is_urgent or now >= self._send_at
        return self._encoder.is_full or (is_next and self._backlog.is_due(now, is_behind=is_behind))

    def _export(self) -> None:
        """Bring what gathered to the spool, then let go of it in the rings."""
        now = time.monotonic()
        self._backlog.left(now, is_behind=not self._spool.is_empty)
        self._send_at, self._is_urgent = now + SEND_S, False
        known, self._malformed = self._malformed, self._source.malformed
        if self._malformed > known:
            self._spool.account(self._malformed - known, {}, INVALID)
        self._encoder.close_window()
        self._source.stated = self._encoder.stated
        self._encoder.export()
        self._encoder.fit(self._spool.room)
        items, self._items = self._items, []
        if items:
            self._write_account()
        for item in items:
            self._source.done(item)
        self._emit_trouble()

    def _emit_trouble(self) -> None:
        """Log once when the spool's disk stops taking requests, and once when it takes them again."""
        if self._spool.degraded is not self._in_trouble:
            self._in_trouble = self._spool.degraded
            if self._in_trouble:
                log.warning("telemetry waits in memory only: its spool has trouble: %s", self._spool.trouble)
            else:
                log.warning("telemetry waits on disk again")

    def _finish(self, deadline: float, shutdown: ShutdownSignal) -> None:
        is_late = deadline - time.monotonic() < _LATE_S
        if self._sampler is not None:
            self._sampler.stop()
        while self._read() or (self._source.waiting and time.monotonic() < deadline):
            pass
        if unsaid := self._source.unsaid:
            self._spool.account(unsaid, {}, NOT_SENT)
        if not shutdown.is_exit:
            self._end(shutdown)
        self._encoder.report_drops(self._dropped(), now=True)
        self._export()
        self._encoder.collect(is_last=True)
        self._sender.drain(deadline - time.monotonic() - _STOP_S)
        if shutdown.is_exit:
            self._write_last_account()
            if self._end(shutdown) or is_late:
                self._export()
                self._sender.drain(EXIT_S)
        self._sender.stop(_STOP_S)
        self._write_last_account()
        self._spool.close(discard=True)

    def _end(self, shutdown: ShutdownSignal) -> bool:
        """Send the end that the trainer did not; whether there was one to send."""
        ending = shutdown.end(self._finished)
        if ending is not None:
            self._emit(ending)
        return ending is not None

    @property
    def is_emptied(self) -> bool:
        """Whether nothing of the trainer's is left in the rings."""
        return not self._source.waiting and not self._items

    def _dropped(self) -> int:
        return sum(self._spool.books.dropped.values()) + sum(self._source.dropped().values())

    def _progressed(self) -> None:
        """A request has been settled."""
        self._write_account()
        if self._spool.books.delivered:
            self._delivers()

    def _write_last_account(self) -> None:
        self._is_final = True
        self._write_account()

    def _write_account(self) -> None:
        with self._accounting:  # an older account must not come after a newer one
            books = self._spool.books
            is_whole = self._is_final and self.is_emptied
            progress = Progress(
                delivered=books.delivered,
                dropped=dict(books.dropped),
                settled=self._spool.settled,
                at_risk=books.at_risk,
                kept=books.waiting - books.at_risk if is_whole else None,
                final=self._is_final,
            )
            self._report(progress)


def open_spool(hello: Hello, rings: Path) -> Spool:
    """The spool of this life of the trainer; raises `OSError` when another process has it."""
    meta = SpoolMeta(
        run_id=hello.run_id,
        role=hello.role,
        rank=hello.rank,
        epoch=hello.epoch,
        pid=os.getpid(),
        rings=str(rings),
        endpoint=hello.endpoint,
        otlp_env=hello.otlp_env,
        created=hello.started.at,
    )
    root = Path(os.fsdecode(hello.folder or b"")) / spool_root(env_of(hello))
    return Spool(spool_folder(root, meta), meta=meta)


def destinations(endpoint: str | None, otlp_env: Mapping[str, str] | None) -> dict[Signal, Destination]:
    """Where each signal goes that the trainer has not switched off; logs always go.

    What a version left that kept no environment goes by the one of this process.
    """
    env = os.environ if otlp_env is None else otlp_env
    wanted = [
        signal
        for signal in (Signal.LOGS, Signal.METRICS, Signal.TRACES)
        if signal is Signal.LOGS or env.get(f"OTEL_{signal.name}_EXPORTER", "").strip().lower() != "none"
    ]
    return {signal: _destination(signal, endpoint, env) for signal in wanted}


def _destination(signal: Signal, endpoint: str | None, env: Mapping[str, str]) -> Destination:
    try:
        return destination(signal, endpoint, env)
    except ValueError as error:
        log.warning("%s; sending to %s", error, DEFAULT_HTTP)
        return destination(signal, DEFAULT_HTTP, env)


class _Requested(ShutdownSignal):
    """The shutdown as the trainer asks for it."""

    def __init__(self) -> None:
        self._is_requested = threading.Event()
        self._deadline = 0.0

    def query(self, deadline: float) -> None:
        """Be done by `deadline`."""
        self._deadline = deadline
        self._is_requested.set()

    def wait(self, timeout_s: float) -> float | None:
        """Wait so long; the deadline, once it was given."""
        return self._deadline if self._is_requested.wait(timeout_s) else None


class ExporterThread:
    """The exporter as a thread of the trainer, where no process can be started or no file can be shared.

    The same work as the process does, at the price of the interpreter lock; it ends with the trainer.
    """

    pid = None

    def __init__(self, hello: Hello, rings: RingSet, report: Callable[[Progress], None]) -> None:
        self._hello, self._rings, self._report = hello, rings, report
        self._shutdown = _Requested()
        self._thread = threading.Thread(target=self._run, name="overwatch-exporter", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def watch(self) -> None:
        """Wait for its end, however long that takes."""
        self._thread.join()

    def announce_close(self, deadline: float, *, at_exit: bool) -> None:  # noqa: ARG002 it ends with the process
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end."""
        self._shutdown.query(deadline)

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came in time. What does not end, ends with the trainer."""
        self._thread.join(max(timeout_s, 0.0))
        return not self._thread.is_alive()

    def release(self) -> None:
        """Let go of it."""
        self._shutdown.query(time.monotonic())

    def abandon(self) -> None:
        """In a forked child there is no such thread."""

    def _run(self) -> None:
        try:
            self._work()
        except Exception:
            log.exception("the telemetry thread ended")
            raise

    def _work(self) -> None:
        source = RingSource(self._rings)
        spool = open_spool(self._hello, self._rings.path)
        try:
            Exporter(self._hello, source, spool, self._report).run(self._shutdown)
        finally:
            spool.close()
            source.close()

"""A run whose rings are read in the test itself: no process, no thread but the run's own."""

import contextlib
import uuid
from collections.abc import Callable, Iterator

import msgspec

from overwatch.events import Event, Measured, Origin, Record
from overwatch.sdk import Run, WordTables
from overwatch.sdk.device import DeviceLimits
from overwatch.sdk.exporter.record_events import unpacked
from overwatch.sdk.frames import Frame, Rolled
from overwatch.sdk.link import Outcome
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.rings.writer import Entry
from overwatch.state import apply, new_run
from overwatch.state.run import RunState

ORIGIN = Origin(run_id="r", role="trainer", rank=0, epoch="e")


class LocalLink:
    """A link to rings that are read by `Local.frames`."""

    exporter_pid = None
    role = "trainer"

    def __init__(self, limits: RingLimits | None) -> None:
        self.rings = RingSet(uuid.uuid4().hex, limits, shared=False)
        self.source = RingSource(self.rings)
        self.largest = 0
        """Bytes of the largest record that was offered."""

    def send(self, frame: Frame) -> None:
        """Hand over one record."""
        self.rings.put(frame)

    def offer(self, record: Entry, *, is_fact: bool) -> bool:
        """Hand over a large record where there is room now."""
        self.largest = max(self.largest, len(record.payload))
        return self.rings.offer(record, is_fact=is_fact)

    def count_drop(self, reason: str) -> None:
        """Count a record that could not even be made."""
        self.rings.count_drop(reason)

    def uses(self) -> int:
        """Records handed over so far."""
        return self.rings.account().accepted

    def flush(self, timeout_s: float) -> bool:  # noqa: ARG002 its interface
        """Nothing is awaited."""
        return True

    def close(self, timeout_s: float, *, at_exit: bool = False) -> Outcome:  # noqa: ARG002 its interface
        """End the rings."""
        account = self.rings.close(0.0)
        return Outcome(
            accepted=account.accepted, delivered=0, kept=account.published, dropped=account.dropped
        )


class Local:
    """A run and what its rings hold."""

    def __init__(
        self, words: WordTables | None = None, n_envs: int | None = None, limits: RingLimits | None = None
    ) -> None:
        self.words = words
        self.link = LocalLink(limits)
        self.run = Run("r", self.link, n_envs, words=words)  # type: ignore[arg-type] # a link of its shape

    def frames(self) -> list[Frame]:
        """What has come since the last time, in the order of the trainer's clock."""
        self.run._channel.device.settle(20.0)
        found = self.link.source.read()
        for item in found:
            self.link.source.done(item)
        assert self.link.source.malformed == 0
        return [item.content for item in found]  # type: ignore[misc] # nothing gathers here

    def records(self) -> list[Rolled]:
        """Records of rollouts among them."""
        return [frame for frame in self.frames() if isinstance(frame, Rolled)]

    def both(self) -> tuple[list[Frame], list[Event]]:
        """What has come since the last time, as it came and as events."""
        frames = self.frames()
        return frames, [event for frame in frames for event in unpacked(frame, self.words)]

    def events(self) -> list[Event]:
        """The same as events."""
        return self.both()[1]


@contextlib.contextmanager
def local(
    words: WordTables | None = None, n_envs: int | None = None, limits: RingLimits | None = None
) -> Iterator[Local]:
    """A run that is closed afterwards."""
    one = Local(words, n_envs, limits)
    try:
        yield one
    finally:
        one.run.close(0.0)


def by_hand(one: Local) -> None:
    """Have nothing delivered but by the test itself."""
    one.run._channel.device._limits = DeviceLimits(period_s=600.0)


def folded(events: list[Event]) -> RunState:
    """The state of a run that these events are all of, in this order."""
    records = [Record(origin=ORIGIN, event=event, seq=number) for number, event in enumerate(events, 1)]
    state = new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def timed(events: list[Event], at: Callable[[Event], int]) -> list[Event]:
    """The events with other times."""
    return [msgspec.structs.replace(event, at=at(event)) for event in events]


def measured(events: list[Event], scope: object) -> list[Measured]:
    """Numbers of a scope."""
    return [event for event in events if isinstance(event, Measured) and event.scope is scope]

"""Notifiers as exporters: a message when a finding starts and one when it ends, however it travels.

Must not know what carries a message; each section does.
"""

from typing import TYPE_CHECKING, Final, Protocol

from overwatch.collector.context import Context
from overwatch.serve.notices import NoticeLimits
from overwatch.serve.notifier import Carrier, Notifier

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

_SENT: Final = "overwatch_exporter_sent_notices"
_LOST: Final = "overwatch_exporter_lost_notices"


class NotifierConfig(Protocol):
    """What the section of each notifier gives."""

    def limits(self) -> NoticeLimits:
        """What is sent; raises `ValueError`."""
        ...

    def carrier(self) -> Carrier:
        """What sends it; raises `ValueError`."""
        ...


class NotifierExporter:
    """A frame sink that sends findings: `webhook`, `email`, `command`, by their sections."""

    def __init__(self, config: NotifierConfig, context: Context, name: str) -> None:
        account = _Account(name, context)
        self._name, self._health = name, context.health
        self._notifier = Notifier(config.carrier(), account, config.limits(), context.journal.note(name))

    def start(self) -> None:
        """Begin to send."""
        self._notifier.start()
        self._health.watch(self._name, lambda: self._notifier.is_running)

    def publish(self, frame: "Frame") -> None:
        """Have the frame looked at."""
        self._notifier.publish(frame)

    def close(self) -> None:
        """Send what is due of the last frame."""
        self._notifier.close()

    def stop(self) -> None:
        """Send what is due of the last frame."""
        self._notifier.close()


class _Account:
    """What became of messages, as counters and as the exporter's health."""

    def __init__(self, name: str, context: Context) -> None:
        self._name = name
        self._tally, self._health = context.tally, context.health
        for series in (_SENT, _LOST):
            self._tally.add(series, 0, exporter=name)

    def sent(self) -> None:
        """One arrived."""
        self._tally.add(_SENT, 1, exporter=self._name)
        self._health.recovered(self._name)

    def lost(self, count: int) -> None:
        """So many will never be sent."""
        self._tally.add(_LOST, count, exporter=self._name)

    def trouble(self, error: str) -> None:
        """Why one did not arrive."""
        self._health.failed(self._name, error)

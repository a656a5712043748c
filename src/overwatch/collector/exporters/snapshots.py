"""The exporter `snapshots`: one line of JSON a second and run, for replay and for any tool."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.context import Context
from overwatch.serve.recorder import Recorder

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

NAME: Final = "snapshots"


class SnapshotsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.snapshots`."""

    path: Path
    """The file that lines are added to."""


class SnapshotsExporter:
    """A frame sink that records."""

    def __init__(self, config: SnapshotsConfig, context: Context, name: str = NAME) -> None:
        self._name = name
        self._tally = context.tally
        self._health = context.health
        self._recorder = Recorder(config.path, self._report)

    def start(self) -> None:
        """Begin to write."""
        for name in ("overwatch_exporter_written_lines", "overwatch_exporter_lost_lines"):
            self._tally.add(name, 0, exporter=self._name)
        self._recorder.start()
        self._health.watch(self._name, lambda: self._recorder.is_running)

    def publish(self, frame: "Frame") -> None:
        """Queue what the frame records."""
        self._recorder.publish(frame)

    def close(self) -> None:
        """Write what waits."""
        self._recorder.close()

    def stop(self) -> None:
        """Write what waits."""
        self._recorder.close()

    def _report(self, written: int, lost: int, error: str | None) -> None:
        self._tally.add("overwatch_exporter_written_lines", written, exporter=self._name)
        self._tally.add("overwatch_exporter_lost_lines", lost, exporter=self._name)
        if error is None:
            self._health.recovered(self._name)
        else:
            self._health.failed(self._name, error)

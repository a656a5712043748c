"""The exporter `snapshots`: one line of JSON a second and run, for replay and for any tool.

It can be made again from a recording, so it leaves the last room on a volume to others. What was written
stays within its limits, whoever fills the volume.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.budget import volume_of
from overwatch.collector.context import Context
from overwatch.collector.setting_types import bounded
from overwatch.serve.recorder import Recorder
from overwatch.serve.snapshotfiles import SnapshotFiles

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

NAME: Final = "snapshots"


class SnapshotsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.snapshots`."""

    path: Path
    """The file that lines are added to; older ones lie beside it, packed."""
    max_size_mib: int = 1024
    """Most MiB of all of them, or less where the disk budget is tight; the oldest go."""
    whole_hours: float = 6
    """For so long one line a second and run is kept, then one a minute."""

    def __post_init__(self) -> None:
        if self.max_size_mib < 1:
            raise ValueError(
                f"max_size_mib {self.max_size_mib} is not positive; "
                "for no snapshots take the exporter out of service.pipelines.snapshots"
            )
        bounded(self, "whole_hours", least=0)


class SnapshotsExporter:
    """A frame sink that records."""

    def __init__(self, config: SnapshotsConfig, context: Context, name: str = NAME) -> None:
        self._name = name
        self._tally = context.tally
        self._health = context.health
        files = SnapshotFiles(config.path, context.now, context.storage.room(name), config.whole_hours)
        files.free = lambda: volume_of(config.path).beyond_spare
        files.removed = partial(context.storage.remove, name)
        self._recorder = Recorder(files, self._report)

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
        self._health.report(self._name, error)

"""The exporter `aggregator`: how much the fold may hold, what every run is judged by, and who found no room.

The condition `runs` holds from the first run that is refused, because as many live as there may be, until
none was for a minute. Must not know how runs are folded, nor why they live.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.catalog.presets import parse_preset
from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.setting_types import bounded
from overwatch.fold import SLOW_NS
from overwatch.runs import Room

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

PART: Final = "runs"
CLEAR_NS: Final = 60 * SLOW_NS
"""So long without a refusal ends the condition."""


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.aggregator`."""

    journal_size_mib: int = 256
    """Most MiB of accepted batches that wait for their readers; beyond it senders must retry."""
    baseline: str | None = None
    """A recording, or a log of snapshots; a run that gets less done than the one in it is reported."""
    preset: str | None = None
    """Whose limits judge every run, e.g. `grpo`; without, each run names its own."""
    max_runs: int = 1024
    """Most runs in memory; the ones that have been over for longest make room, others are refused."""
    max_state_mib: int | None = None
    """Most MiB of all runs in memory; by the memory limit of `receivers.otlp.limits` if left out."""
    ended_days: float = 7.0
    """For so many days at most a run that is over stays in memory."""
    archive_mib: int = 1024
    """Most MiB on disk of the last pictures of runs that are not in memory any more; the oldest go."""
    archive_runs: int | None = None
    """So many of them stay, the newest; all do if left out."""
    archive_days: float | None = None
    """They go so many days after they left memory; none do if left out."""

    def __post_init__(self) -> None:
        bounded(self, "journal_size_mib", "max_runs", "archive_mib")
        bounded(self, "max_state_mib", least=8)
        bounded(self, "ended_days", least=0)
        if self.archive_runs is not None and self.archive_runs < 1:
            raise ValueError(f"archive_runs {self.archive_runs} is less than 1; leave it out to keep all")
        if self.archive_days is not None and not self.archive_days >= 0:
            raise ValueError(f"archive_days {self.archive_days} is less than 0; leave it out to keep all")
        if self.preset is not None:
            parse_preset(self.preset)

    def room(self, limits: LimitsConfig) -> Room:
        """How much the fold may hold within a process of these limits."""
        state = limits.state_bytes if self.max_state_mib is None else self.max_state_mib << 20
        return Room(runs=self.max_runs, bytes=state, ended_ns=round(self.ended_days * 86_400e9))


class Refusals:
    """A frame sink: the condition of one collector. It reads counts of the fold and returns at once."""

    def __init__(self, health: Health, max_runs: int) -> None:
        self._health = health
        self._max_runs = max_runs
        self._before: int | None = None
        """Records that were refused up to the frame before; what earlier lives refused is no news."""
        self._since = 0
        self._at: int | None = None
        """Tick of the newest refusal, while the condition holds."""

    def publish(self, frame: "Frame") -> None:
        """Compare the count with the one of the frame before."""
        refused, before = frame.tower.refused_runs, self._before
        self._before = refused
        if before is not None and refused > before:
            if self._at is None:
                self._since = before
            self._at = frame.tick
            self._health.failed(
                PART,
                f"{refused - self._since:,} records of new runs were refused: no run in memory is over, "
                f"and max_runs is {self._max_runs}; raise exporters.aggregator.max_runs or add a collector",
            )
        elif self._at is not None and frame.tick - self._at >= CLEAR_NS:
            self._at = None
            self._health.recovered(PART)

    def close(self) -> None:
        """Nothing waits."""

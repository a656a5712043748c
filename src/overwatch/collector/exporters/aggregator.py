"""The section of the exporter `aggregator`: how much the fold may hold, and what every run is judged by.

Must not know how runs are folded.
"""

import msgspec

from overwatch.catalog.presets import parse_preset
from overwatch.collector.limits import LimitsConfig
from overwatch.runs import Room


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.aggregator`."""

    journal_size_mib: int = 256
    """Most MiB of accepted batches that wait for their readers; beyond it senders must retry."""
    baseline: str | None = None
    """A recording, or a log of snapshots; a run that gets less done than the one in it is reported."""
    preset: str | None = None
    """Whose limits judge every run, e.g. `grpo`; without, each run says itself."""
    max_runs: int = 1024
    """Most runs in memory; the ones that have been over for longest make room, others are refused."""
    max_state_mib: int | None = None
    """Most MiB of all runs in memory; by the memory limit of `receivers.otlp.limits` if left out."""
    ended_days: float = 7.0
    """For so many days at most a run that is over stays in memory."""
    archive_mib: int = 1024
    """Most MiB on disk of the last pictures of runs that are not in memory any more; the oldest go."""

    def __post_init__(self) -> None:
        for name in ("journal_size_mib", "max_runs", "archive_mib"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")
        if self.max_state_mib is not None and self.max_state_mib < 8:
            raise ValueError(f"max_state_mib {self.max_state_mib} is less than 8")
        if not self.ended_days >= 0:
            raise ValueError(f"ended_days {self.ended_days} is less than 0")
        if self.preset is not None:
            parse_preset(self.preset)

    def room(self, limits: LimitsConfig) -> Room:
        """How much the fold may hold within a process of these limits."""
        state = limits.state_bytes if self.max_state_mib is None else self.max_state_mib << 20
        return Room(runs=self.max_runs, bytes=state, ended_ns=round(self.ended_days * 86_400e9))

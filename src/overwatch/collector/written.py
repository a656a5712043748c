"""What a collector writes to disk, by its configuration: the table of parts that share the disk budget.

A part that is new gets one row; the order is that in which parts yield, the last one first. Must not know
how large anything is.
"""

from collections.abc import Callable
from typing import Final

from overwatch.collector.budget import Row, Written
from overwatch.collector.exporters.aggregator import AggregatorConfig
from overwatch.collector.exporters.otlp_file.config import OtlpFileConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.extensions.file_storage import JOURNAL_MIB, FileStorageConfig
from overwatch.collector.settings import CollectorConfig
from overwatch.recordings.division import Part

_MIB: Final = 1 << 20
JOURNAL: Final = "journal"
"""The part that holds what was acknowledged."""
ARCHIVE: Final = "archive"
"""The last pictures of runs that are not in memory any more."""
ENDED: Final = "ended"
"""Its folder."""
_CHECKPOINT: Final = ".checkpoint"


def written(config: CollectorConfig) -> Written:
    """Everything that a configuration writes, with its budget."""
    storage = config.one(FileStorageConfig)
    wanted = None if storage.budget_mib is None else storage.budget_mib * _MIB
    return Written(folder=storage.directory, wanted=wanted, rows=_rows(config))


def _rows(config: CollectorConfig) -> tuple[Row, ...]:
    storage, found = config.one(FileStorageConfig), list[Row]()
    if "file_storage" in config.service.extensions:
        journal, most = storage.directory / JOURNAL, storage.max_size_mib * _MIB
        found += [
            Row(
                part=Part(name=JOURNAL, floor=JOURNAL_MIB * _MIB, most=most, is_needed=True),
                place=journal,
                holds=lambda name: not name.endswith(_CHECKPOINT),
            ),
            Row(
                part=Part(name="checkpoints", floor=16 * _MIB, most=512 * _MIB, is_needed=True),
                place=journal,
                holds=lambda name: name.endswith(_CHECKPOINT),
            ),
        ]
    for name, files in config.every(OtlpFileConfig).items():
        if name in config.signal_exporters:
            most = files.budget.folder_mib * _MIB
            found.append(Row(part=Part(name=name, floor=min(most, 32 * _MIB), most=most), place=files.path))
    if "file_storage" in config.service.extensions:
        most = config.one(AggregatorConfig).archive_mib * _MIB
        found.append(Row(part=Part(name=ARCHIVE, floor=0, most=most), place=storage.directory / ENDED))
    for name, log in config.every(SnapshotsConfig).items():
        if name in config.snapshot_exporters:
            found.append(
                Row(
                    part=Part(name=name, floor=0, most=log.max_size_mib * _MIB),
                    place=log.path.parent,
                    holds=_beginning(log.path.name.removesuffix(".jsonl")),
                )
            )
    return tuple(found)


def _beginning(stem: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(stem)

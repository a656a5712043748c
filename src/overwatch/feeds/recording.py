"""Reading a recording: the index and the OTLP files beside it, back into batches and frames.

Owns the shape of `index.jsonl` on the reading side and the order of replay. A recording replays to the
frames that were live: same batches, same ticks, same fold. Must not know who shows the frames.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from overwatch.fold import FAST_NS, Fold, Frame, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.jsonl import from_json

INDEX_VERSION: Final = 1


class RecordingError(ValueError):
    """The folder is not a recording that this build can read."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of an index."""

    overwatch_index: int
    version: str
    fast_ms: int
    slow_ms: int


class Located(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one batch lies."""

    sequence: int
    stamp: int
    signal: Signal
    file: str
    offset: int
    length: int


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector started here: its fold began empty and its clock jumps to this stamp."""

    sequence: int
    stamp: int
    signal: Signal
    body: dict[str, object]


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector stopped cleanly after this tick."""

    end: int


Entry: TypeAlias = Header | Located | Started | Ended


class Recording:
    """A folder with `index.jsonl` and the OTLP JSON files it points into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "index.jsonl"
        if not self.index.is_file():
            raise RecordingError(f"{folder} has no index.jsonl; name the folder that `otlp_file` wrote to")
        self.bad_lines = 0
        """Index lines that could not be read, e.g. a tail cut by a crash."""

    def entries(self) -> Iterator[Entry]:
        """The index in order; lines that cannot be read are counted and passed over."""
        with self.index.open("rb") as lines:
            for line in lines:
                try:
                    yield _entry(line)
                except msgspec.DecodeError:
                    self.bad_lines += 1

    def frames(self) -> Iterator[Frame]:
        """Every frame that was live, in order."""
        fold, tick, waiting = Fold(), None, list[Batch]()
        for entry in self.entries():
            if isinstance(entry, Header):
                continue
            if isinstance(entry, Ended):
                while tick is not None and tick <= entry.end:
                    yield fold.advance(tick, waiting, ())
                    waiting, tick = [], tick + FAST_NS
                continue
            while tick is not None and tick < entry.stamp and isinstance(entry, Located):
                yield fold.advance(tick, waiting, ())
                waiting, tick = [], tick + FAST_NS
            if isinstance(entry, Started):
                if tick is not None and waiting:
                    yield fold.advance(tick, waiting, ())
                fold, tick, waiting = Fold(), next_tick(entry.stamp), []
                continue
            tick = next_tick(entry.stamp) if tick is None else tick
            waiting.append(self._batch(entry))
        if tick is not None and waiting:
            yield fold.advance(tick, waiting, ())

    def _batch(self, entry: Located) -> Batch:
        if entry.file != Path(entry.file).name:
            raise RecordingError(f"{self.index} points outside of its folder: {entry.file!r}")
        with (self.folder / entry.file).open("rb") as data:
            data.seek(entry.offset)
            line = data.read(entry.length)
        body = from_json(entry.signal, line.rstrip(b"\n"))
        return Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=body)


def _entry(line: bytes) -> Entry:
    raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    kind: type[Entry] = Located
    if "overwatch_index" in raw:
        kind = Header
    elif "end" in raw:
        kind = Ended
    elif "body" in raw:
        kind = Started
    entry: Entry = msgspec.json.decode(line, type=kind)
    if isinstance(entry, Header) and entry.overwatch_index != INDEX_VERSION:
        raise RecordingError(f"index version {entry.overwatch_index} is not {INDEX_VERSION}; record again")
    return entry

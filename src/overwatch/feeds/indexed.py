"""The folder that `otlp_file` wrote: its index, and the OTLP/JSON lines that this points at."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from overwatch.feeds.source import Account
from overwatch.otlp.jsonl import MalformedJson, from_json
from overwatch.recordings.compaction import runs_in
from overwatch.recordings.files import LIVE, RecordingFiles
from overwatch.recordings.index import Entry, Located, RecordingError, read_entry
from overwatch.recordings.pieces import Piece
from overwatch.recordings.values import MOST_BYTES


class Indexed:
    """A recording with its index, read where it lies; a collector may be writing to it."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.account = Account()
        self.index = folder / LIVE
        self.bad_lines = 0
        """Index lines that could not be read, e.g. a tail cut by a crash."""
        self._files = RecordingFiles(folder)
        if not self.index.is_file() and not self._files.list().pieces:
            raise RecordingError(f"{folder} has no index.jsonl; name the folder that `otlp_file` wrote to")

    def entries(self) -> Iterator[Entry]:
        """The index in order; lines that cannot be read are counted and passed over."""
        self.bad_lines = 0
        stored: dict[tuple[Piece | None, str], str] = {}
        for piece, line in self._files.lines():
            try:
                entry = read_entry(line)
            except msgspec.DecodeError:
                self.bad_lines += 1
                continue
            if isinstance(entry, Located):
                key = piece, entry.file
                if key not in stored:
                    stored[key] = self._files.stored(piece, entry.file)
                if stored[key] != entry.file:
                    entry = msgspec.structs.replace(entry, file=stored[key])
            yield entry

    def may_name(self, run_id: str, entry: Located) -> bool:
        """Whether an entry may hold something of a run: it names that run, or none."""
        try:
            return not {run_id, ""}.isdisjoint(runs_in(self._files.line(entry)))
        except OSError:
            return False

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        if entry.length > MOST_BYTES:
            raise MalformedJson(f"$: a line of {entry.length} bytes; at most {MOST_BYTES} are read")
        return from_json(entry.signal, self._files.line(entry).rstrip(b"\r\n"))

"""Batches that have no index: OTLP files of any exporter, put in order by the times in them.

Nobody wrote down when these batches were received, so the newest time that a batch tells stands for that.
Rules: the same files give the same order, whatever they are called first; a silence of more than a minute
is left out, as if the collector had been away. Must not know what the records mean.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from overwatch.feeds.journalled import Spooled
from overwatch.feeds.source import Account, Source
from overwatch.fold import SLOW_NS, next_tick
from overwatch.journal import Signal
from overwatch.otlp.jsonl import from_json
from overwatch.otlp.sniff import RequestKind, is_json, sniff
from overwatch.recordings.index import Ended, Entry, Located, StartBody, Started
from overwatch.recordings.stored import Part, StoredFile
from overwatch.recordings.values import MOST_BYTES

LONGEST_SILENCE_NS: Final = 60 * SLOW_NS
"""Recording time without a batch that is shown."""


class OtlpFile:
    """One file of OTLP/JSON, or of protobuf or JSON messages with their lengths before them."""

    def __init__(self, stored: StoredFile) -> None:
        self.name = str(stored.path)
        self.account = Account()
        self._stored = stored

    def entries(self) -> Iterator[Entry]:
        """Batches as they lie in the file; stamps are the newest times in them, and may fall.

        One without a time has that of the one before, else of the first with one, else of the file.
        """
        self.account.clear()
        if self._stored.unpacked_badly is not None:
            self.account.remark(
                f"{self.name}: read as far as it could be unpacked: {self._stored.unpacked_badly}"
            )
        stamp, waiting = 0, list[Located]()
        for sequence, (part, found) in enumerate(self._requests(), 1):
            first = found.newest if not stamp else None
            stamp = found.newest or stamp
            entry = Located(
                sequence=sequence, stamp=stamp or 1, signal=found.signal, file=self._stored.path.name,
                offset=part.offset, length=part.length,
            )  # fmt: skip
            if not stamp:
                waiting.append(entry)
                continue
            if first is not None:
                yield from (msgspec.structs.replace(one, stamp=first) for one in waiting)
                waiting.clear()
            yield entry
        yield from (msgspec.structs.replace(one, stamp=self._stored.written_ns) for one in waiting)

    def _requests(self) -> Iterator[tuple[Part, RequestKind]]:
        return ((part, found) for part in self._stored.parts() for found in self._kinds(part))

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        data = self._stored.read(entry.offset, entry.length)
        return from_json(entry.signal, data) if is_json(data) else data

    def _kinds(self, part: Part) -> tuple[RequestKind, ...]:
        """The requests that a part is; none, and counted, where it is nothing that is replayed."""
        if part.data is None:
            long = f"longer than {MOST_BYTES >> 20} MiB"
            self.account.skip(self.name, "cut off at the end" if part.is_last else long)
            return ()
        try:
            found = sniff(part.data)
        except ValueError:
            self.account.skip(self.name, "cut off at the end" if part.is_last else "no JSON")
            return ()
        if not found:
            self.account.skip(self.name, "no OTLP logs, metrics or traces")
        return found


class Rebuilt:
    """Several sources as one, in the order of their stamps; starts and ends of collectors are left out."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name = name
        self.account = Account()
        self._sources = tuple(sources)

    def entries(self) -> Iterator[Entry]:
        """All batches by stamp, then by source and place; gaps as starts that go on from before."""
        found: list[tuple[int, int, Located]] = []
        for number, source in enumerate(self._sources):
            found += [
                (entry.stamp, number, entry) for entry in source.entries() if isinstance(entry, Located)
            ]
        found.sort(key=lambda item: (item[0], item[1], item[2].sequence))
        self.account.clear()
        if not all(isinstance(source, Spooled) for source in self._sources):
            self.account.remark(
                f"{self.name}: there is no index, so batches are in the order of the newest time in each"
            )
        for source in self._sources:
            self.account.take(source.account)
        stamp = 0
        for sequence, (told, number, entry) in enumerate(found, 1):
            if stamp and told > stamp + LONGEST_SILENCE_NS:
                after = next_tick(stamp) + LONGEST_SILENCE_NS
                stamp = max(stamp + 1, told - 1)
                yield Started(
                    sequence=sequence, stamp=stamp, signal=Signal.START, body=StartBody(after=after)
                )
            stamp = max(stamp + 1, told)
            yield msgspec.structs.replace(
                entry, sequence=sequence, stamp=stamp, file=f"{number}/{entry.file}"
            )
        if found and next_tick(stamp) // SLOW_NS * SLOW_NS < next_tick(found[0][0]):
            # There is a snapshot each whole second, and none lies between.
            yield Ended(end=-(-stamp // SLOW_NS) * SLOW_NS)

    def body(self, entry: Located) -> bytes:
        """The request of an entry."""
        number, _, file = entry.file.partition("/")
        return self._sources[int(number)].body(msgspec.structs.replace(entry, file=file))

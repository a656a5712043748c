"""The lines of a recording's index: what each kind holds, and reading them.

Owns the shape of `index.jsonl`; `docs/recordings.md` describes it. Rules: a kind of line is known by its
first distinctive key; what no kind fits is an error of that line alone. Where numbers were thinned, a gap
between two of them looks like trouble: there only those findings are found anew that were seen open then,
for what stands around them was kept (`Notes`). Must not know where files lie, what batches mean, or how
they are replayed.
"""

from bisect import bisect_right
from typing import Annotated, Final, TypeAlias

import msgspec

from overwatch import __version__
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import INDEX_VERSION, Signal
from overwatch.otlp.thin import RetentionLevel
from overwatch.snapshot import Baseline

Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Time: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]


_NS_PER_MS: Final = 1_000_000
BACK_NS: Final = 600_000_000_000
"""From the tick at which it was seen open, a finding is followed back this far at most."""


class RecordingError(ValueError):
    """The folder is not a recording that this build can read."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has in one packed piece."""

    bytes: Place
    """Of its lines, not packed."""
    retention: RetentionLevel = RetentionLevel.WHOLE
    """What is left of its numbers."""
    kept: tuple[tuple[int, int], ...] = ()
    """Of thinned ones, the stamps between which they are whole, in order."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """First line of an index."""

    overwatch_index: int
    version: str
    fast_ms: int
    slow_ms: int
    first_stamp: int | None = None
    """Of a packed piece: the stamps of the batches and starts in it, as they were recorded."""
    last_stamp: int | None = None
    runs: dict[str, Share] = {}
    """Of a packed piece, by run id."""


def new_header(
    first_stamp: int | None = None, last_stamp: int | None = None, runs: dict[str, Share] | None = None
) -> Header:
    """The header of an index that this build writes."""
    return Header(
        overwatch_index=INDEX_VERSION,
        version=__version__,
        fast_ms=FAST_NS // _NS_PER_MS,
        slow_ms=SLOW_NS // _NS_PER_MS,
        first_stamp=first_stamp,
        last_stamp=last_stamp,
        runs=runs or {},
    )


class Located(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one batch lies."""

    sequence: Place
    stamp: Time
    signal: Signal
    file: str
    offset: Place
    """In the plain stream, whether the file is packed or not."""
    length: Place


class StartBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is read of a start record's body."""

    after: int | None = None
    """As of `LifeStarted`."""
    baseline: Baseline | None = None
    """The same."""
    preset: str | None = None
    """The same."""
    diagnosis: dict[str, object] | None = None
    """The same, as it was written: another version may judge by more."""

    room: dict[str, object] | None = None
    """The same, likewise."""

    @property
    def reports(self) -> bool:
        """Whether it holds how runs are judged and held."""
        return any(one is not None for one in (self.baseline, self.preset, self.diagnosis, self.room))


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector started here, and its clock jumps to this stamp.

    Its fold began empty, or, where the body has `after`, went on from the life before.
    """

    sequence: Place
    stamp: Time
    signal: Signal
    body: StartBody


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector stopped cleanly after this tick."""

    end: Time


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """A finding was first seen open at this tick."""

    finding: str
    """Its id within the run."""
    run: str
    tick: Time
    since: Time
    """When it became true; both in Unix nanoseconds."""
    severity: str

    def around(self, before_ns: int, after_ns: int) -> tuple[int, int]:
        """From so long before it was true to so long after it was seen open; not for ever back."""
        since = max(min(self.since, self.tick), self.tick - BACK_NS)
        return since - before_ns, self.tick + after_ns


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """What was here was let go of to make room."""

    gone: str
    """The run id; empty for batches of no run."""
    batches: Place
    records: Place
    first: Place
    """Stamps of the first and the last batch that went."""
    last: Place


Entry: TypeAlias = Header | Located | Started | Ended | Raised | Gone

_KINDS: tuple[tuple[str, type[Entry]], ...] = (
    ("overwatch_index", Header), ("end", Ended), ("body", Started), ("finding", Raised), ("gone", Gone),
)  # fmt: skip


_located = msgspec.json.Decoder(Located).decode
_decoders = {kind: msgspec.json.Decoder(kind).decode for kind in (Located, *(kind for _, kind in _KINDS))}
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_entry(line: bytes) -> Entry:
    """One line; raises `msgspec.DecodeError` on what is none, `RecordingError` on another index version."""
    try:
        return _located(line)
    except msgspec.DecodeError:
        raw = _raw(line)
    kind = next((kind for key, kind in _KINDS if key in raw), Located)
    entry: Entry = _decoders[kind](line)
    if isinstance(entry, Header) and entry.overwatch_index != INDEX_VERSION:
        raise RecordingError(f"index version {entry.overwatch_index} is not {INDEX_VERSION}; record again")
    return entry


_AROUND_NS: Final = 5_000_000_000
"""A finding may be found so long before it was true, by clocks that differ, and after it was seen open."""
_NONE: Final[dict[str, frozenset[str]]] = {}


class Notes:
    """Filled in order of the index."""

    def __init__(self) -> None:
        self.findings: list[Raised] = []
        """Those that were seen open while it was recorded."""
        self.gone: list[Gone] = []
        """What went to make room."""
        self.thinned: dict[str, dict[RetentionLevel, int]] = {}
        """By run and grain, the stamp up to which numbers have it."""
        self._firsts: list[int] = []
        self._spans: dict[str, list[tuple[int, int, str]]] | None = None
        """When each finding may be found, by run; made once all findings are known."""
        self._stretches: list[frozenset[str]] = []
        """From each of these stamps on, the runs that are thinned."""
        self._is_whole = False
        """The first stamp of the piece that is read is that of its first batch."""
        self._pieces: list[tuple[int, frozenset[str] | None]] = []
        """First stamp of each piece, and the runs in it, the empty id for what names none; `None`: any."""

    def piece(self, header: Header) -> None:
        """A piece begins."""
        self._is_whole = header.first_stamp is None
        if header.first_stamp is None:
            return
        self._pieces.append((header.first_stamp, frozenset(header.runs)))
        thinned = set()
        for run_id, share in header.runs.items():
            if share.retention not in (RetentionLevel.WHOLE, RetentionLevel.GONE):
                thinned.add(run_id)
                of_run = self.thinned.setdefault(run_id, {})
                of_run[share.retention] = max(of_run.get(share.retention, 0), header.last_stamp or 0)
        self._begin(header.first_stamp, frozenset(thinned))

    def reported(self, entry: Located | Started) -> None:
        """A batch or a start."""
        if self._is_whole:
            self._is_whole = False
            self._pieces.append((entry.stamp, None))
            self._begin(entry.stamp, frozenset())

    def first_of(self, run_id: str) -> int | None:
        """No batch of a run is in a piece that begins before this stamp; `None` where none can be of it."""
        wanted = {run_id, ""}
        return min((first for first, runs in self._pieces if runs is None or wanted & runs), default=None)

    def muted(self, tick: int) -> dict[str, frozenset[str]]:
        """By run whose numbers are thinned at a tick: the findings that may be found there."""
        place = bisect_right(self._firsts, tick) - 1
        thinned = self._stretches[place] if place >= 0 else None
        return {run_id: self._found(run_id, tick) for run_id in thinned} if thinned else _NONE

    def is_whole(self, tick: int) -> bool:
        """Whether all that came up to a tick is there as it came."""
        is_thinned = any(
            runs for first, runs in zip(self._firsts, self._stretches, strict=True) if first <= tick
        )
        return not is_thinned and all(gone.first > tick for gone in self.gone)

    @property
    def reported_thinning(self) -> tuple[object, ...]:
        """All that `muted` goes by; empty where nothing was thinned."""
        if not any(self._stretches):
            return ()
        stretches = [sorted(runs) for runs in self._stretches]
        return self.thinned, self._firsts, stretches, self.findings

    def _found(self, run_id: str, tick: int) -> frozenset[str]:
        """The findings that were open first around a tick."""
        if self._spans is None:
            self._spans = {}
            for raised in self.findings:
                span = *raised.around(_AROUND_NS, _AROUND_NS), raised.finding
                self._spans.setdefault(raised.run, []).append(span)
        spans = self._spans.get(run_id, ())
        return frozenset(finding for first, last, finding in spans if first <= tick <= last)

    def _begin(self, first: int, thinned: frozenset[str]) -> None:
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._stretches.append(thinned)

"""The lines of a recording's index: what each kind holds, and reading them.

Owns the shape of `index.jsonl` on the reading side; `docs/recordings.md` describes it. Rules: a kind of line
is told by its first telling key; what no kind fits is an error of that line alone. Must not know where
files lie, nor what batches mean.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from overwatch.journal import INDEX_VERSION, Signal
from overwatch.otlp.thin import RetentionLevel
from overwatch.snapshot import Baseline

Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Time: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]


BACK_NS: Final = 600_000_000_000
"""From the tick at which it was seen open, a finding is followed back this far at most."""


class RecordingError(ValueError):
    """The folder is not a recording that this build can read."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has in one packed piece."""

    bytes: Place
    """Of its lines, not packed."""
    grain: RetentionLevel = RetentionLevel.WHOLE
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
    def tells(self) -> bool:
        """Whether it says how runs are judged and held."""
        return any(one is not None for one in (self.baseline, self.preset, self.diagnosis, self.room))


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collector started here, and its clock jumps to this stamp.

    Its fold began empty, or, where the body says `after`, went on from the life before.
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

"""What a recording can be made of: batches in order, wherever they lie.

Owns the protocol and the account of what could not be read. A source tells its batches as the lines of an
index do, and gives the body of each when it is asked for; so what is large is read piece by piece.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

from overwatch.recordings.index import Entry, Located

_MOST_EXAMPLES: Final = 8


class Source(Protocol):
    """Where batches come from."""

    @property
    def name(self) -> str:
        """What a person knows it by: a path."""
        ...

    @property
    def account(self) -> "Account":
        """What could not be read so far, and what else must be said."""
        ...

    def entries(self) -> Iterator[Entry]:
        """All batches and starts in the order of replay. Raises `RecordingError`, `OSError`."""
        ...

    def body(self, entry: Located) -> bytes:
        """The protobuf request of an entry. Raises `OSError` or `MalformedJson` where it cannot be had."""
        ...


class Account:
    """What was passed over, by file and reason, and remarks for who looks at the rest."""

    def __init__(self) -> None:
        self.passed_over: Counter[tuple[str, str]] = Counter()
        """By file and reason."""
        self.remarks: dict[str, None] = {}

    @property
    def skipped(self) -> int:
        """Lines and messages that were passed over."""
        return self.passed_over.total()

    def clear(self) -> None:
        """Begin again, before the same is read again."""
        self.passed_over.clear()

    def skip(self, file: str, reason: str) -> None:
        """One line or message of a file was passed over."""
        self.passed_over[file, reason] += 1

    def remark(self, text: str) -> None:
        """Say something once."""
        self.remarks[text] = None

    def take(self, other: "Account") -> None:
        """Add what another tells."""
        self.passed_over.update(other.passed_over)
        self.remarks.update(other.remarks)

    def lines(self) -> tuple[str, ...]:
        """All of it as text, the most frequent reasons first."""
        told = [
            f"{file}: {count:,} passed over: {reason}"
            for (file, reason), count in self.passed_over.most_common(_MOST_EXAMPLES)
        ]
        rest = len(self.passed_over) - len(told)
        more = [f"and {rest} more files or reasons"] if rest > 0 else []
        return (*self.remarks, *told, *more)

"""The head of a request that the web server judged, and whether another request begins with the same words.

Must not know what is done with either.
"""

from typing import Final, NamedTuple

from overwatch.journal import Signal

_MOST_DIGITS: Final = 9


class JudgedHead(NamedTuple):
    """A head that was judged: what lies before and after the length of the body."""

    before: bytes
    after: bytes
    signal: Signal
    gzipped: bool
    epoch: int

    def length(self, data: bytes) -> tuple[int, int] | None:
        """The length of the body of a request that begins so, and where the body begins."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        end = data.find(b"\r", at, at + _MOST_DIGITS + 1)
        digits = data[at:end] if end > 0 else b""
        if not digits.isdigit() or not data.startswith(self.after, end):
            return None
        return int(digits), end + len(self.after)

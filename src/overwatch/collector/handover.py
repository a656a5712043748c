"""What the doors decoded, kept until the fold asks for it: a light body is decoded once, not twice.

Rules: a hint, never a truth: what is not here is decoded again, with the same result. Bounded; the oldest
goes first, as bodies that were refused in the end, or that the fold reads from files, are never asked for.
Templates are learned where the fold asks, whom nobody waits for, and read by the doors too. Large bodies are
decoded one at a time, whoever asks: each takes many times its size. The fold rests between bodies, so that
who waits for an answer comes first. Must not know what records mean.
"""

import threading
import time
from collections import OrderedDict
from typing import Final, NamedTuple

from overwatch.collector.calm import Calm, Patience
from overwatch.journal import Signal
from overwatch.otlp.decode import Decoded
from overwatch.otlp.templates import Templates

MOST_BYTES: Final = 2 << 20
"""Most bytes of bodies whose records are kept; records take several times as much."""
_COLUMNS: Final = 8
"""As many times more of what templates read: they make columns, which are smaller than a body."""


_TURN_S: Final = 0.001
"""So long the fold may work on end, in seconds..."""
_REST_S: Final = 0.0005
"""...before it rests for so long, and until doors have taken in what they are at."""

LARGE_BYTES: Final = 256 << 10
"""Bodies of more bytes than this wait for each other."""


class _Kept(NamedTuple):
    """A body, and what it was decoded to."""

    body: bytes
    decoded: Decoded
    known: bool

    @property
    def cost(self) -> int:
        return len(self.body) // (_COLUMNS if self.known else 1)


class Handover:
    """Decoded bodies on their way; safe from any thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.calm = Calm()
        """Whether doors take something in."""
        self._patience = Patience(self.calm)
        self._most = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _Kept] = OrderedDict()
        self._templates = Templates()
        self._bytes = 0
        self._large = threading.Lock()
        self._rested_at = 0.0

    def recognise(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode`, of a body whose shape is known, in no time; else `None`."""
        return self._templates.read(signal, body)

    def decode(self, signal: Signal, body: bytes) -> Decoded:
        """As `decode`, a large body that has no template in its turn; raises `MalformedBody`."""
        return self.recognise(signal, body) or self._decode(signal, body)

    def _decode(self, signal: Signal, body: bytes) -> Decoded:
        if len(body) <= LARGE_BYTES:
            return self._templates.decode(signal, body)
        with self._large:
            return self._templates.decode(signal, body)

    def put(self, body: bytes, decoded: Decoded, *, known: bool = False) -> None:
        """Keep what `body`, this very object, was decoded to; `known` says that its shape was."""
        kept = _Kept(body, decoded, known)
        with self._lock:
            self._drop(id(body))
            self._held[id(body)] = kept
            self._bytes += kept.cost
            while self._bytes > self._most:
                self._drop(next(iter(self._held)))

    def take(self, signal: Signal, body: bytes) -> Decoded:
        """As `decode`, and what was kept is let go of; for the fold's thread. Raises `MalformedBody`."""
        self._rest()
        with self._lock:
            kept = self._drop(id(body))
        # A body that is held keeps its id: whoever has it, it is the same object.
        if kept is not None:
            said, known = kept.decoded, kept.known
        else:
            recognised = self.recognise(signal, body)
            said, known = recognised or self._decode(signal, body), recognised is not None
        self._templates.study(signal, body, known=known)
        return said

    def _rest(self) -> None:
        now = time.monotonic()
        if now - self._rested_at > _TURN_S:
            time.sleep(_REST_S)
            self._patience.rest()
            self._rested_at = time.monotonic()

    def _drop(self, key: int) -> _Kept | None:
        kept = self._held.pop(key, None)
        if kept is not None:
            self._bytes -= kept.cost
        return kept

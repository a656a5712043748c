"""How bodies are decoded: at the doors, and by the fold where what the doors made of them is not at hand.

Rules: whoever decodes gets the same. What a door made of a body goes with it through the journal (`Made`),
so that a body is decoded once while the fold keeps up; of log records and of a shape that is known it goes
instead of the body, which nobody then holds once it is written. Shapes are learned where the fold asks, whom
nobody waits for, and read by the doors too. Large bodies are decoded one at a time, whoever asks: each takes
many times its size. The fold rests between bodies, so that who waits for an answer comes first. Must not know
what records mean.
"""

import threading
import time
from contextlib import nullcontext
from typing import Final

import msgspec

from overwatch.collector.calm import Calm, Patience
from overwatch.journal import Batch, Made, Signal
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.packed import packed, unpacked
from overwatch.otlp.shapes import Shapes

SMALL_BYTES: Final = 32 << 10
"""Bodies up to this size are decoded in the event loop: to wake a thread and to wait for it takes longer.

What is made of an unknown shape goes with its body up to this size: records take much memory."""
_RECORDS: Final = 8
"""As many times the size of a body its records take, about; of a known shape they take a fifth of it."""

_TURN_S: Final = 0.001
"""So long the fold may work on end, in seconds..."""
_REST_S: Final = 0.0005
"""...before it rests for so long, and until doors have taken in what they are at."""

LARGE_BYTES: Final = 256 << 10
"""Bodies of more bytes than this wait for each other."""


class Decoding:
    """Decoders and the shapes that they know; safe from any thread."""

    def __init__(self) -> None:
        self.calm = Calm()
        """Whether doors take something in."""
        self._patience = Patience(self.calm)
        self._shapes = Shapes()
        self._large = threading.Lock()
        self._rested_at = 0.0

    def recognise(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode`, of a body whose shape is known, in no time; else `None`."""
        return self._shapes.read(body) if signal is Signal.METRICS else None

    def decode(self, signal: Signal, body: bytes, patience: Patience | None) -> Decoded:
        """As the general path does, a large body of no known shape in its turn; raises `MalformedBody`.

        Who is in no hurry rests meanwhile, with this `patience`.
        """
        return self.recognise(signal, body) or self._decode(signal, body, patience)

    def _decode(self, signal: Signal, body: bytes, patience: Patience | None) -> Decoded:
        rest = None if patience is None else patience.rest
        with self._large if patience is not None and len(body) > LARGE_BYTES else nullcontext():
            return decode(signal, body, rest)

    def take(self, batch: Batch) -> Decoded:
        """What a batch says; for the fold's thread. Raises `MalformedBody`."""
        self._rest()
        said = _at_hand(batch.made)
        if said is not None and batch.made is not None and batch.made.instead:
            return said
        known = None if said is not None else self.recognise(batch.signal, batch.body)
        if known is not None:
            return known
        said = said or self._decode(batch.signal, batch.body, self._patience)
        if batch.signal is Signal.METRICS:
            self._shapes.study(batch.body)
        return said

    def _rest(self) -> None:
        now = time.monotonic()
        if now - self._rested_at > _TURN_S:
            time.sleep(_REST_S)
            self._patience.rest()
            self._rested_at = time.monotonic()


def _at_hand(made: Made | None) -> Decoded | None:
    """What a door, or its helper, made of a body; `None` where the body has to be read for it."""
    if made is None or not isinstance(made.what, bytes):
        return made.what if made is not None and isinstance(made.what, Decoded) else None
    try:
        return unpacked(made.what)
    except msgspec.DecodeError:
        if made.instead:
            raise
        return None


def made_of(signal: Signal, body: bytes, decoded: Decoded, *, known: bool) -> Made | None:
    """What goes with a body whose shape was `known`, or was not; `None` where it takes much memory.

    What log records say goes instead of them, in as many bytes, about; a shape may be learned from metrics.
    """
    if known:
        return Made(what=decoded, cost=len(body) // 5, instead=True)
    if len(body) > SMALL_BYTES:
        return None
    if signal is not Signal.METRICS:
        said = packed(decoded, len(body))
        return None if said is None else Made(what=said, cost=len(said), instead=True)
    return Made(what=decoded, cost=_RECORDS * len(body))

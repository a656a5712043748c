"""How bodies are decoded: where they come in, and by the fold where what was made of them is not at hand.

Rules: whoever decodes gets the same. What was made of a small body goes with it through the journal (`Made`),
so that a body is decoded once while the fold keeps up; of a shape that is known it goes instead of the body,
which is not held once it is written. Shapes are learned where the fold asks, and read by the listeners too.
Large bodies are decoded one at a time, whoever asks: each takes many times its size. Must not know what
records mean.
"""

import threading
from contextlib import nullcontext
from typing import Final

from overwatch.journal import Batch, Made, Signal
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.shapes import Shapes

SMALL_BYTES: Final = 32 << 10
"""Bodies up to this size are decoded where they come: to wake a thread and to wait for it takes longer.

What is made of them goes with them: records take much memory."""
_RECORDS: Final = 8
"""As many times the size of a body its records take, about; of a known shape they take a fifth of it."""
LARGE_BYTES: Final = 256 << 10
"""Bodies of more bytes than this wait for each other."""


class Decoding:
    """Decoders and the shapes that they know; safe from any thread."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._large = threading.Lock()

    def recognise(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode`, of a body whose shape is known, in no time; else `None`."""
        return self._shapes.read(body) if signal is Signal.METRICS else None

    def decode(self, signal: Signal, body: bytes) -> Decoded:
        """What a body of no known shape says, large ones one at a time; raises `MalformedBody`."""
        with self._large if len(body) > LARGE_BYTES else nullcontext():
            return decode(signal, body)

    def take(self, batch: Batch) -> Decoded:
        """What a batch says; for the fold's thread. Raises `MalformedBody`."""
        made = None if batch.made is None else batch.made.what
        if isinstance(made, Decoded) and batch.made is not None and batch.made.instead:
            return made
        if not isinstance(made, Decoded):
            made = self.recognise(batch.signal, batch.body)
            if made is not None:
                return made
            made = self.decode(batch.signal, batch.body)
        if batch.signal is Signal.METRICS:
            self._shapes.study(batch.body)
        return made


def made_of(body: bytes, decoded: Decoded, *, known: bool) -> Made | None:
    """What goes with a body whose shape was `known`, or was not; `None` where it takes much memory."""
    if known:
        return Made(what=decoded, cost=len(body) // 5, instead=True)
    return Made(what=decoded, cost=_RECORDS * len(body)) if len(body) <= SMALL_BYTES else None

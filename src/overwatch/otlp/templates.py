"""The templates of shapes that come again, learned as they do, of metrics requests.

Learning costs as much as some parsing, so it is left to whoever calls `study`, whom nobody should wait for.
Bounded in memory. Safe from any thread. Must not know what a body says.
"""

from typing import Final

from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.lengths import Lengths
from overwatch.otlp.result import Decoded, Rest
from overwatch.otlp.template import Template, learn

LEAST_BYTES: Final = 1024
"""Smaller metrics requests are read as fast by the general path."""
MOST_BYTES: Final = 32 << 20
"""Memory of all templates of one signal."""


class Templates:
    """Reads bodies of known shapes without a parser."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._metrics: Lengths[Template] = Lengths(most_bytes)

    @property
    def learned(self) -> int:
        """Templates made so far."""
        return self._metrics.learned

    def read(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode` reads it, where templates can; else `None`."""
        if signal is not Signal.METRICS:
            return None
        for place, template in enumerate(self._metrics.of(len(body))):
            said = template.read(body)
            if said is not None:
                if place:
                    self._metrics.put_first(template)
                return said
        return None

    def decode(self, signal: Signal, body: bytes, rest: Rest = None) -> Decoded:
        """As `decode`, of a body whose shape is not known; raises `MalformedBody`. May `rest` meanwhile."""
        return decode(signal, body, rest)

    def study(self, signal: Signal, body: bytes, *, known: bool = False) -> None:
        """Take note of a body that could be read, by templates if `known`; learn its shape when that pays."""
        if signal is Signal.METRICS and not known:
            self._study_metrics(body)

    def _study_metrics(self, body: bytes) -> None:
        if len(body) < LEAST_BYTES:
            return
        if any(template.fits(body) for template in self._metrics.of(len(body))):
            return
        made = learn(body) if self._metrics.is_due(len(body)) else None
        if made is not None:
            self._metrics.keep(made)


class TemplateReader:
    """`decode` for who reads many bodies one after the other, by templates where they can be had."""

    def __init__(self) -> None:
        self._templates = Templates()

    def read_batch(self, batch: Batch) -> Decoded:
        """What a batch says; raises `MalformedBody`."""
        return self.read(batch.signal, batch.body)

    def read(self, signal: Signal, body: bytes) -> Decoded:
        """As `decode`; raises `MalformedBody`."""
        said = self._templates.read(signal, body)
        known = said is not None
        if said is None:
            said = self._templates.decode(signal, body)
        self._templates.study(signal, body, known=known)
        return said

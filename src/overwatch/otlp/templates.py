"""The templates of the shapes that come again, learned as they do; whoever reads here reads as `decode` does.

Owns which shapes are worth a template: one whose length came a few times, and where the templates of a length
keep failing, ever more seldom. Bounded in memory; the shape that was not seen for longest goes first. Safe
from any thread. Must not know what a body says.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.result import Decoded
from overwatch.otlp.template import Template, learn

LEAST_BYTES: Final = 2048
"""Smaller bodies are read as fast by the general path."""
LEARN_AT: Final = 3
"""How often a length must have come."""
MORE_SELDOM: Final = 4
"""How many times as often before the next try, each time that a template of the length did not fit."""
MOST_LENGTHS: Final = 1024
MOST_OF_ONE: Final = 4
"""Templates of one length: clients of one fleet send the same number of bytes under different names."""
MOST_BYTES: Final = 32 << 20
"""Memory of all templates."""


@dataclass(slots=True)
class _Length:
    """What is known of bodies of one length."""

    missed: int = 0
    """How many came that no template read."""
    due: int = LEARN_AT
    """At how many misses a template is learned."""
    templates: list[Template] = field(default_factory=list)
    """The one that fitted last is the first."""


class TemplatesStats(msgspec.Struct, frozen=True):
    """What became of bodies."""

    fitted: int
    missed: int
    learned: int


class Templates:
    """Reads metrics bodies, those that come again without a parser."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._lengths: OrderedDict[int, _Length] = OrderedDict()
        self._bytes = 0
        self._fitted = self._missed = self._learned = 0

    @property
    def stats(self) -> TemplatesStats:
        """Counts so far."""
        return TemplatesStats(self._fitted, self._missed, self._learned)

    def decode(self, signal: Signal, body: bytes) -> Decoded:
        """As `decode`; raises `MalformedBody`."""
        if signal is not Signal.METRICS or len(body) < LEAST_BYTES:
            return decode(signal, body)
        with self._lock:
            known = self._known(len(body))
            templates = tuple(known.templates)
        for template in templates:
            said = template.read(body)
            if said is not None:
                self._fit(known, template)
                return said
        said = decode(signal, body)
        self._miss(known, body)
        return said

    def _known(self, length: int) -> _Length:
        known = self._lengths.get(length)
        if known is None:
            known = self._lengths[length] = _Length()
            if len(self._lengths) > MOST_LENGTHS:
                self._forget()
        else:
            self._lengths.move_to_end(length)
        return known

    def _forget(self) -> None:
        _, gone = self._lengths.popitem(last=False)
        self._bytes -= sum(template.cost for template in gone.templates)

    def _fit(self, known: _Length, template: Template) -> None:
        with self._lock:
            self._fitted += 1
            if known.templates and known.templates[0] is not template and template in known.templates:
                known.templates.remove(template)
                known.templates.insert(0, template)

    def _miss(self, known: _Length, body: bytes) -> None:
        with self._lock:
            self._missed += 1
            known.missed += 1
            if known.missed < known.due:
                return
            known.due = known.missed * MORE_SELDOM
        made = learn(body)
        if made is None or made.cost > self._most:
            return
        with self._lock:
            self._learned += 1
            known.templates.insert(0, made)
            self._bytes += made.cost
            while len(known.templates) > MOST_OF_ONE:
                self._bytes -= known.templates.pop().cost
            while self._bytes > self._most and self._lengths:
                self._forget()

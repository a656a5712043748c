"""The templates of shapes that come again, learned as they do.

Owns which shapes are worth a template: one whose length came a few times, and where the templates of a length
keep failing, ever more seldom: to learn one costs as much as some parsing. Bounded in memory; the length that
was not seen for longest goes first. Safe from any thread. Must not know what a body says.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from overwatch.journal import Signal
from overwatch.otlp.result import Decoded
from overwatch.otlp.template import Template, learn

LEAST_BYTES: Final = 1024
"""Smaller bodies are read as fast by the general path."""
LEARN_AT: Final = 3
"""How often a length must have come."""
MORE_SELDOM: Final = 4
"""How many times as many must come before the next try."""
MOST_LENGTHS: Final = 1024
MOST_OF_ONE: Final = 4
"""Templates of one length: clients of one fleet send as many bytes under different names."""
MOST_BYTES: Final = 32 << 20
"""Memory of all templates."""


@dataclass(slots=True)
class _Length:
    """What is known of bodies of one length."""

    strange: int = 0
    """How many came whose shape no template had."""
    due: int = LEARN_AT
    """At how many of them a template is learned."""
    templates: list[Template] = field(default_factory=list)
    """The one that fitted last is the first."""


class Templates:
    """Reads metrics bodies of known shapes without a parser."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._lengths: OrderedDict[int, _Length] = OrderedDict()
        self._bytes = 0
        self.learned = 0
        """Templates made so far."""

    def read(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode` reads it, where a template can; else `None`."""
        for place, template in enumerate(self._of(signal, body)):
            said = template.read(body)
            if said is not None:
                if place:
                    self._put_first(len(body), template)
                return said
        return None

    def study(self, signal: Signal, body: bytes) -> None:
        """Take note of a body that the general path could read, and learn its shape when that pays."""
        if signal is not Signal.METRICS or len(body) < LEAST_BYTES:
            return
        if any(template.fits(body) for template in self._of(signal, body)):
            return
        with self._lock:
            known = self._known(len(body))
            known.strange += 1
            if known.strange < known.due:
                return
            known.due = known.strange * MORE_SELDOM
        made = learn(body)
        if made is not None and made.cost <= self._most:
            self._keep(made)

    def _of(self, signal: Signal, body: bytes) -> tuple[Template, ...]:
        if signal is not Signal.METRICS:
            return ()
        with self._lock:
            known = self._lengths.get(len(body))
            return () if known is None else tuple(known.templates)

    def _known(self, length: int) -> _Length:
        known = self._lengths.setdefault(length, _Length())
        self._lengths.move_to_end(length)
        if len(self._lengths) > MOST_LENGTHS:
            self._forget()
        return known

    def _put_first(self, length: int, template: Template) -> None:
        with self._lock:
            known = self._known(length)
            if template in known.templates:
                known.templates.remove(template)
                known.templates.insert(0, template)

    def _keep(self, made: Template) -> None:
        with self._lock:
            self.learned += 1
            known = self._known(made.length)
            known.templates.insert(0, made)
            self._bytes += made.cost
            while len(known.templates) > MOST_OF_ONE:
                self._bytes -= known.templates.pop().cost
            while self._bytes > self._most:
                self._forget()

    def _forget(self) -> None:
        """Let go of the length that was not seen for longest."""
        _, gone = self._lengths.popitem(last=False)
        self._bytes -= sum(template.cost for template in gone.templates)

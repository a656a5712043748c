"""The same functions as `written` and `columns` write, compiled: the same bytes in a quarter of the time.

`_compiled.c` is built when Overwatch is installed where there is a C compiler; where there is none, or
`OVERWATCH_PURE_PYTHON` is set, everything here gives `None` and Python does it. Must not know the catalogue.
"""

import os
from collections.abc import Callable, Sized
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from overwatch.sdk.rings.layout import (
    ALIGN,
    HEAD,
    ONE,
    PRIME,
    REASONS,
    W_DROPPED,
    W_FOLDED,
    W_PUBLISHED,
    W_RELEASED,
    padded,
)
from overwatch.sdk.rings.ringset import RingSet

EDITION: Final = 3
"""As in `_compiled.c`: what an older source was compiled to is not used."""
MAX_NAMES: Final = 64
"""Of the largest record that a function is compiled for."""

W_RING_FULL: Final = W_DROPPED + REASONS.index("ring_full")


def _found() -> ModuleType | None:
    if os.environ.get("OVERWATCH_PURE_PYTHON"):
        return None
    try:
        found = import_module("overwatch.sdk.rings._compiled")
    except ImportError:
        return None
    return found if found.EDITION == EDITION else None


COMPILED: Final = _found()
"""What was built, if it was."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Updates that a function is for."""

    names: tuple[str, ...]
    form: int
    payload: int
    """Bytes behind the head."""
    tag: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that a function is for."""

    letters: dict[str, str]
    """What the buffer protocol calls the numbers of each."""
    rows: int
    payload: int
    """Bytes behind the head."""
    plain: int
    """Tag of a record without index."""
    indexed: int
    """Tag of a record with one."""
    array: type
    """The only type that is taken."""


def update(
    said: Numbers,
    rings: RingSet,
    *,
    put: Callable[[tuple[float, ...], int, int | None], None],
    latest: object,
    waiting: Sized | None,
    other: Callable[..., None],
) -> Callable[..., None] | None:
    """A function for such updates: by place where it is told what may be waiting, else by name.

    `put` is given numbers, moment and index when the ring is full or another writes; `other` what the
    function is not for.
    """
    if COMPILED is None or not _suits(said.names):
        return None
    made: Callable[..., None] = COMPILED.update(
        **_common(said.names, said.payload, rings, W_FOLDED), put=put, latest=latest, waiting=waiting,
        other=other, tally=rings.numbers.tally(said.form).memory, tag=said.tag,
    )  # fmt: skip
    return made


def envs(
    said: Columns, rings: RingSet, *, waiting: Sized, other: Callable[..., None]
) -> Callable[..., None] | None:
    """A function for such columns; what it is not for goes to `other`, and everything while some waits."""
    names = tuple(said.letters)
    if COMPILED is None or not _suits(names):
        return None
    made: Callable[..., None] = COMPILED.envs(
        **_common(names, said.payload, rings, W_RING_FULL), array=said.array, waiting=waiting, other=other,
        plain=said.plain, indexed=said.indexed, rows=said.rows, formats="".join(said.letters.values()),
    )  # fmt: skip
    return made


def _suits(names: tuple[str, ...]) -> bool:
    return 0 < len(names) <= MAX_NAMES and all(type(name) is str for name in names)


def _common(names: tuple[str, ...], payload: int, rings: RingSet, counter: int) -> dict[str, Any]:
    """What both kinds are told; `counter` is the word that counts what finds no room."""
    chute, length = rings.numbers, HEAD.size + payload
    ring, size = chute.ring, padded(length)
    return {
        "names": names, "ring": ring, "token": ring.token, "aside": chute.aside, "view": ring.view,
        "flush": chute.flush, "stuck": chute.stuck, "length": length, "size": size,
        "step": ONE + size // ALIGN, "published": W_PUBLISHED, "released": W_RELEASED, "counter": counter,
        "prime": PRIME,
    }  # fmt: skip

"""The short way of `run.update`: twelve numbers into the ring in about a microsecond.

Owns what makes it short. Names that come again are a form, so a record holds numbers only. msgspec writes
exact floats as nine bytes each and refuses what it does not know without running its code; so where every
ninth byte says "float", all values were floats, none had to be asked, and no device was waited for. For the
form in use a function is written with the names as its parameters: binding them costs a third of a dict.

Rules: everything unusual goes to `slow`, which must end in `RingSet.put`. Never raises by itself but for what
`slow` raises. Must not know the catalogue.
"""

import builtins
import contextlib
import functools
import keyword
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from time import time_ns
from typing import Any, Final, Protocol

import msgspec

from overwatch.sdk.rings.file import FENCE
from overwatch.sdk.rings.layout import (
    ALIGN,
    HEAD,
    INDEXED,
    ONE,
    PRIME,
    W_PUBLISHED,
    Kind,
    padded,
    summing,
    tag,
)
from overwatch.sdk.rings.records import NUMBER, Form, first_number
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.rings.writer import Entry
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
"""Sets of names that are remembered; a run has a handful."""
MAX_WRITTEN: Final = 64
"""Names of the largest update that a function is written for."""
_WRITE_AT: Final = 2
_WRITE_EVERY: Final = 256
_PLAIN: Final = int(Kind.UPDATE)
_INDEXED: Final = Kind.UPDATE | INDEXED
_MAX_INDEX: Final = 1 << 62
_FLOAT: Final = b"\xcb"
_PREFIX: Final = "_ow_"
_encode: Final = msgspec.msgpack.Encoder().encode


class Update(Protocol):
    """`run.update`."""

    def __call__(self, /, *, update: int | None = None, **values: Any) -> None:
        """Numbers of one policy update, by their short names."""


class Owner(Protocol):
    """Whose updates they are."""

    last_update: int | None
    """Number of the last update; set at each."""


@dataclass(slots=True)
class _Known:
    """A form in use."""

    names: tuple[str, ...]
    """As the trainer calls them."""
    number: int
    first: int
    """Where the first value's tag is in the payload."""
    tags: bytes
    uses: int = 0
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = self.first + NUMBER * len(self.names)


class Fast:
    """Makes `update` for a ring set.

    `resolve` gives the full name of a short one or raises `RefusedError`; `slow` takes an update the long
    way; `install` is given each new function that is to be called from now on.
    """

    def __init__(
        self,
        rings: RingSet,
        owner: Owner,
        resolve: Callable[[str], str],
        slow: Callable[[int | None, Mapping[str, Any]], None],
        install: Callable[[Update], None],
    ) -> None:
        self._rings = rings
        self._owner = owner
        self._resolve = resolve
        self._slow = slow
        self._install = install
        self._known: dict[tuple[str, ...], _Known | None] = {}

    def update(self, /, *, update: int | None = None, **values: Any) -> None:
        """Numbers of one policy update; short once their names were seen before."""
        at = time_ns()
        names = tuple(values)
        known = self._known.get(names) or self._find(names)
        data = None if known is None else _payload(known, values)
        if known is None or data is None or not _is_index(update):
            self._slow(update, values)
            return
        self._owner.last_update = update
        kind = _PLAIN if update is None else _INDEXED
        self._rings.numbers.put(Entry(kind, at, data, update or 0, known.number))
        known.uses += 1
        if known.uses % _WRITE_EVERY == _WRITE_AT:
            self._write(known)

    def _find(self, names: tuple[str, ...]) -> _Known | None:
        if names in self._known:
            return self._known[names]
        if len(self._known) >= MAX_FORMS or not names:
            return None
        try:
            known = self._known[names] = self._learn(names)
        except BusyError:
            return None
        return known

    def _learn(self, names: tuple[str, ...]) -> _Known | None:
        try:
            full = tuple(self._resolve(name) for name in names)
            number = self._rings.add_form(Form(names=full)) if len(set(full)) == len(full) else None
        except (RefusedError, UnicodeError):
            return None
        if number is None:
            return None
        return _Known(names=names, number=number, first=first_number(len(names)), tags=_FLOAT * len(names))

    def _write(self, known: _Known) -> None:
        """Write and install the function for a form."""
        if len(known.names) <= MAX_WRITTEN:
            self._install(_written(known, self._rings, self._owner, self.update))


def _is_index(update: object) -> bool:
    return update is None or (type(update) is int and -_MAX_INDEX < update < _MAX_INDEX)


def _payload(known: _Known, values: Mapping[str, Any]) -> bytes | None:
    """The numbers as msgpack; `None` when the type of one is not known to be a plain number's."""
    numbers = list(values.values())
    with contextlib.suppress(Exception):  # what a stranger raises; the long way says which value it is
        data = _encode(numbers)
        if data[known.first :: NUMBER] == known.tags:
            return data
    if not _plain_types("numpy" in sys.modules).issuperset(map(type, numbers)):
        return None
    with contextlib.suppress(OverflowError):
        return _encode([float(number) for number in numbers])
    return None


@functools.cache
def _plain_types(has_numpy: bool) -> frozenset[type]:  # noqa: FBT001
    """Types whose `float()` is quick and runs nobody's code."""
    plain: set[type] = {float, int, bool}
    if has_numpy:
        import numpy as np

        plain |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdg"}
    return frozenset(plain)


_BODY: Final = """
def update(*, update=None, {parameters}**_ow_more):
    _ow_at = _ow_now()
    {odd}
    if update is None:
        _ow_index, _ow_kind, _ow_tag = 0, _ow_plain, _ow_plain_tag
    elif type(update) is int and _ow_least < update < _ow_limit:
        _ow_index, _ow_kind, _ow_tag = update, _ow_indexed, _ow_indexed_tag
    else:
        _ow_kind = 0
    try:
        _ow_data = _ow_encode(({names},))
    except Exception:
        _ow_kind = 0
    if not _ow_kind or _ow_more or _ow_data[_ow_every] != _ow_tags:
        _ow_values = {{{pairs}}}
        return _ow_other(
            update=update, **{{k: v for k, v in _ow_values.items() if v is not _ow_missing}}, **_ow_more
        )
    _ow_owner.last_update = update
    try:
        del _ow_token[0]
    except IndexError:
        return _ow_chute.set_aside(_ow_entry(_ow_kind, _ow_at, _ow_data, _ow_index, _ow_form))
    try:
        _ow_off = _ow_ring.off
        _ow_end = _ow_off + _ow_size
        if _ow_end > _ow_ring.limit:
            _ow_chute.take(_ow_entry(_ow_kind, _ow_at, _ow_data, _ow_index, _ow_form))
        else:
            _ow_word = _ow_ring.word + _ow_step
            _ow_pack(
                _ow_view, _ow_off, _ow_length, _ow_sum(_ow_data, (_ow_at + _ow_index + _ow_tag) % _ow_prime),
                _ow_word, _ow_at, _ow_index, _ow_tag, _ow_data,
            )
            {fence}
            _ow_words[_ow_published] = _ow_word
            _ow_ring.word = _ow_word
            _ow_ring.off = _ow_end
    except BaseException:
        _ow_chute.recover()
        raise
    finally:
        _ow_token.append(None)
    if _ow_chute.aside:
        _ow_chute.flush()
"""


def _written(known: _Known, rings: RingSet, owner: Owner, other: Update) -> Update:
    """The function for one form; values it was not written for go to `other`."""
    ring = rings.numbers.ring
    places = {name: name if is_parameter(name) else f"_ow_{i}" for i, name in enumerate(known.names)}
    source = _BODY.format(
        parameters="".join(f"{name}=_ow_missing, " for name in known.names if is_parameter(name)),
        odd="; ".join(
            f"{place} = _ow_more.pop({name!a}, _ow_missing)"
            for name, place in places.items()
            if not is_parameter(name)
        ),
        names=", ".join(places.values()),
        pairs=", ".join(f"{name!a}: {place}" for name, place in places.items()),
        fence="" if FENCE is None else "_ow_fence()",
    )
    length = HEAD.size + known.length
    scope = {
        "now": time_ns, "encode": _encode, "sum": summing(known.length), "entry": Entry, "fence": FENCE,
        "missing": msgspec.Raw(b"\xc0"), "other": other, "owner": owner, "limit": _MAX_INDEX,
        "least": -_MAX_INDEX, "every": slice(known.first, None, NUMBER), "tags": known.tags,
        "form": known.number, "plain": _PLAIN, "plain_tag": tag(_PLAIN, known.number, 0), "prime": PRIME,
        "indexed": _INDEXED, "indexed_tag": tag(_INDEXED, known.number, 0),
        "chute": rings.numbers, "ring": ring, "token": ring.token, "view": ring.view, "words": ring.words,
        "pack": Struct(f"{HEAD.format}{known.length}s").pack_into, "length": length,
        "size": padded(length), "step": ONE + padded(length) // ALIGN, "published": W_PUBLISHED,
    }  # fmt: skip
    made: dict[str, Any] = {f"{_PREFIX}{name}": value for name, value in scope.items()}
    exec(source, made)  # noqa: S102 the text is ours; the names in it are identifiers
    written: Update = made["update"]
    return written


def is_parameter(name: str) -> bool:
    """Whether a name can be a parameter and hides nothing that a written function uses."""
    plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return plain and name[0] != "_" and not hasattr(builtins, name)

"""The short way of `run.envs`: NumPy columns into the ring, each copied once.

For the columns in use a function is written with their names as its parameters and their length as a
constant: what is left for it is to see that nothing has changed, and to copy.

Rules: takes only exact, one-dimensional, contiguous arrays of numbers of the same length, in the machine's
byte order, which must be little-endian; everything else goes to `slow`, which must end in `RingSet.put`.
Finds NumPy where it is loaded and never loads it. Must not know the catalogue.
"""

import sys
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from itertools import accumulate, pairwise
from time import time_ns
from typing import Any, Final, Protocol

from overwatch.catalog import Scope
from overwatch.events import MAX_ROWS
from overwatch.sdk.rings import compiled
from overwatch.sdk.rings.file import FENCE
from overwatch.sdk.rings.layout import (
    ALIGN,
    HEAD,
    INDEXED,
    ONE,
    PRIME,
    W_PUBLISHED,
    Kind,
    checksum,
    padded,
    summing,
    tag,
)
from overwatch.sdk.rings.records import Form
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.rings.writer import Entry
from overwatch.sdk.rings.written import MAX_CHAIN, is_parameter
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
_MAX_INDEX: Final = 1 << 62
_DTYPES: Final = {
    "d": "<f8", "f": "<f4", "l": "<i8", "q": "<i8", "i": "<i4", "h": "<i2", "b": "|i1",
    "I": "<u4", "H": "<u2", "B": "|u1", "?": "|u1",
}  # fmt: skip
"""By the letter that the buffer protocol has for them."""
_LETTERS: Final = {letter: "truth" if letter == "?" else letter for letter in _DTYPES}
"""As part of a name."""
_pack: Final = HEAD.pack_into
_PLAIN: Final = int(Kind.COLUMNS)
_INDEXED: Final = Kind.COLUMNS | INDEXED
_LITTLE: Final = sys.byteorder == "little"
_IDS: Final = frozenset("lqihbIHB")
_WRITE_AT: Final = 2
_WRITE_EVERY: Final = 256
_MAX_WRITTEN: Final = compiled.MAX_NAMES
"""Columns of the largest step that a function is written for."""


class Slow(Protocol):
    """`run.envs` the long way."""

    def __call__(self, env_id: Any, step: Any, columns: Mapping[str, Any], /) -> None:
        """Numbers of one env step."""


class Envs(Protocol):
    """`run.envs`."""

    def __call__(
        self, /, *, env_id: Any = None, step: int | None = None, lane: Any = None, **columns: Any
    ) -> None:
        """Numbers of one env step, by their short names."""


@dataclass(frozen=True, slots=True)
class Home:
    """Whose `envs` it is."""

    envs: Envs
    """Takes what a written function was not written for."""
    install: Callable[[Envs], None]
    """Is given each new function that is to be called from now on."""
    waiting: Sized
    """While anything is in it, everything goes to `envs`."""


@dataclass(slots=True)
class _Known:
    number: int
    width: int
    """Bytes a row."""
    plain: int
    """Tag without rows of a record without index."""
    indexed: int
    """The same with index."""
    uses: int = 0


class FastColumns:
    """Takes env columns for a ring set.

    `resolve` gives the full name of a short one or raises `RefusedError`; `slow` takes what cannot go the
    short way. With a home, functions are written for it.
    """

    def __init__(
        self,
        rings: RingSet,
        resolve: Callable[[str], str],
        slow: Slow,
        scope: Scope = Scope.ENV,
        home: Home | None = None,
    ) -> None:
        self._rings = rings
        self._chute = rings.numbers
        self._resolve = resolve
        self._slow = slow
        self._scope = scope
        self._home = home
        self._known: dict[tuple[tuple[str, ...], str], _Known | None] = {}
        self._head = None if home is None else home.envs
        """The newest function; each leaves to the one before what it was not written for."""
        self._chained: set[tuple[int, int]] = set()
        """Forms and lengths that have one."""

    def put(self, env_id: Any, step: int | None, columns: Mapping[str, Any]) -> None:
        """One array a name; without `env_id` the envs are 0, 1, 2, ..."""
        at = time_ns()
        views = _views(env_id, columns)
        if views and (step is None or (type(step) is int and -_MAX_INDEX < step < _MAX_INDEX)):
            letters = "".join([view.format for view in views])
            names = tuple(columns)
            known = self._known.get((names, letters)) or self._find(names, letters, env_id is not None)
            if known is not None:
                self._put(known, views, at, step)
                known.uses += 1
                if known.uses % _WRITE_EVERY == _WRITE_AT and env_id is None:
                    self._write(known, names, views)
                return
        self._slow(env_id, step, columns)

    def _put(self, known: _Known, views: list[memoryview], at: int, step: int | None) -> None:
        if step is None:
            kind, which, index = _PLAIN, known.plain, 0
        else:
            kind, which, index = _INDEXED, known.indexed, step
        rows = len(views[0])
        length = HEAD.size + known.width * rows
        size = (length + ALIGN - 1) & -ALIGN
        chute = self._chute
        ring = chute.ring
        try:
            del ring.token[0]
        except IndexError:
            chute.set_aside(Entry(kind, at, b"".join(views), index, known.number, rows))
            return
        try:
            off = ring.off
            if off + size > ring.limit or size > ring.largest:
                if not chute.refused(size):
                    chute.take(Entry(kind, at, b"".join(views), index, known.number, rows))
            else:
                memory = ring.view
                start = first = off + HEAD.size
                for view in views:
                    end = start + view.nbytes
                    memory[start:end] = view.cast("B")
                    start = end
                word = ring.word + ONE + size // ALIGN
                which |= rows << 32
                crc = checksum(memory[first:start], (at + index + which) % PRIME)
                _pack(memory, off, length, crc, word, at, index, which)
                ring.publish(word, size)
        except BaseException:
            chute.recover()
            raise
        finally:
            ring.token.append(None)
        if chute.aside:
            chute.flush()

    def _write(self, known: _Known, names: tuple[str, ...], views: list[memoryview]) -> None:
        """Write and install the function for columns like these, before those for others."""
        size, chained = padded(HEAD.size + sum(view.nbytes for view in views)), (known.number, len(views[0]))
        if self._home is None or self._head is None or chained in self._chained:
            return
        if len(names) > _MAX_WRITTEN or size > self._chute.ring.largest:
            return
        if len(self._chained) >= MAX_CHAIN:
            self._chained.clear()
            self._head = self._home.envs
        home = Home(self._head, self._home.install, self._home.waiting)
        written = _written(known, names, views, self._rings, home)
        if written is not None:
            self._head = written
            self._chained.add(chained)
            self._home.install(written)

    def _find(self, names: tuple[str, ...], letters: str, has_ids: bool) -> _Known | None:  # noqa: FBT001
        key = names, letters
        if key in self._known or len(self._known) >= MAX_FORMS:
            return self._known.get(key)
        try:
            known = self._known[key] = self._learn(names, letters, has_ids=has_ids)
        except BusyError:
            return None
        return known

    def _learn(self, names: tuple[str, ...], letters: str, *, has_ids: bool) -> _Known | None:
        if has_ids and letters[0] not in _IDS:
            return None
        dtypes = tuple(_DTYPES[letter] for letter in letters)
        try:
            full = tuple(self._resolve(name) for name in names)
            if len(set(full)) < len(full):
                return None
            form = Form(
                names=("env_id", *full) if has_ids else full,
                dtypes=dtypes,
                scope=self._scope,
                keys=int(has_ids),
                first_ids=not has_ids,
            )
            number = self._rings.add_form(form)
        except (RefusedError, UnicodeError):
            return None
        if number is None:
            return None
        width = sum(int(dtype[2:]) for dtype in dtypes)
        return _Known(number, width, tag(_PLAIN, number, 0), tag(_INDEXED, number, 0))


def _views(env_id: Any, columns: Mapping[str, Any]) -> list[memoryview] | None:
    """The arrays' bytes, ids first; `None` when one of them must go the long way."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not columns or not _LITTLE:
        return None
    array = numpy.ndarray
    arrays = list(columns.values()) if env_id is None else [env_id, *columns.values()]
    views: list[memoryview] = []
    try:
        rows = len(arrays[0])
        for one in arrays:
            if type(one) is not array:
                return None
            view = memoryview(one)
            if view.shape != (rows,) or not view.c_contiguous or view.format not in _DTYPES:
                return None
            views.append(view)
    except (ValueError, TypeError):
        return None
    return views if 1 < rows <= MAX_ROWS else None


_BODY: Final = """
def envs(*, env_id=None, step=None, lane=None, {parameters}**_ow_more):
    _ow_at = _ow_now()
    {odd}
    if step is None:
        _ow_index, _ow_tag = 0, _ow_plain
    elif type(step) is int and _ow_least < step < _ow_limit:
        _ow_index, _ow_tag = step, _ow_indexed
    else:
        _ow_tag = 0
    _ow_is_said = False
    if (
        _ow_tag and env_id is None and lane is None and not _ow_more and not _ow_waiting and {types}
        and _ow_token
    ):
        try:
            del _ow_token[0]
        except IndexError:
            pass
        else:
            try:
                _ow_off = _ow_ring.off
                if _ow_off + _ow_size <= _ow_ring.limit:
                    try:
                        {copies}
                    except Exception:
                        pass
                    else:
                        _ow_word = _ow_ring.word + _ow_step
                        _ow_found = _ow_sum(
                            _ow_memory[_ow_off + {first}:_ow_off + {length}],
                            (_ow_at + _ow_index + _ow_tag) % _ow_prime,
                        )
                        _ow_pack(
                            _ow_memory, _ow_off, {length}, _ow_found, _ow_word, _ow_at, _ow_index, _ow_tag
                        )
                        {fence}
                        _ow_words[_ow_published] = _ow_word
                        _ow_ring.word = _ow_word
                        _ow_ring.off = _ow_off + _ow_size
                        _ow_is_said = True
                else:
                    _ow_is_said = _ow_chute.refused(_ow_size)
            except BaseException:
                _ow_chute.recover()
                raise
            finally:
                _ow_token.append(None)
    if not _ow_is_said:
        _ow_values = {{{pairs}}}
        return _ow_other(
            env_id=env_id, step=step, lane=lane,
            **{{k: v for k, v in _ow_values.items() if v is not _ow_missing}}, **_ow_more
        )
    if _ow_chute.aside:
        _ow_chute.flush()
"""
"""A memoryview takes what is assigned to a slice of it only where format and length are its own."""


def _written(
    known: _Known, names: tuple[str, ...], views: list[memoryview], rings: RingSet, home: Home
) -> Envs | None:
    """The function for columns of these names, dtypes and this length; other ones go to the home's.

    `None` where a column would begin in the middle of a number of the ring.
    """
    places = [name if is_parameter(name) else f"_ow_{i}" for i, name in enumerate(names)]
    ends = list(accumulate((view.nbytes for view in views), initial=HEAD.size))
    letters = dict(zip(names, [view.format for view in views], strict=True))
    array = sys.modules["numpy"].ndarray
    said = compiled.Columns(letters, len(views[0]), ends[-1] - HEAD.size, *_tags(known, views), array)
    quick = compiled.envs(said, rings, waiting=home.waiting, other=home.envs)
    if quick is not None:
        return quick
    if any(start % view.itemsize for start, view in zip(ends, views, strict=False)):
        return None
    source = _BODY.format(
        parameters="".join(f"{name}=_ow_missing, " for name in names if is_parameter(name)),
        odd="; ".join(
            f"{place} = _ow_more.pop({name!a}, _ow_missing)"
            for name, place in zip(names, places, strict=True)
            if name != place
        ),
        types=" and ".join(f"type({place}) is _ow_array" for place in places),
        pairs=", ".join(f"{name!a}: {place}" for name, place in zip(names, places, strict=True)),
        copies="; ".join(_copy(*one) for one in zip(places, views, pairwise(ends), strict=True)),
        first=HEAD.size,
        length=ends[-1],
        fence="" if FENCE is None else "_ow_fence()",
    )
    made = {f"_ow_{name}": value for name, value in _scope(known, views, rings, home).items()}
    exec(source, made)  # noqa: S102 the text is ours; the names in it are identifiers
    written: Envs = made["envs"]
    return written


def _tags(known: _Known, views: list[memoryview]) -> tuple[int, int]:
    """Of a record without index, and with one."""
    rows = len(views[0])
    return known.plain | rows << 32, known.indexed | rows << 32


def _copy(place: str, view: memoryview, span: tuple[int, int]) -> str:
    """The text that copies a column to where it belongs behind the place of the record."""
    start, end = (f"(_ow_off + {edge}) // {view.itemsize}" for edge in span)
    return f"_ow_as_{_LETTERS[view.format]}[{start}:{end}] = {place}"


def _scope(known: _Known, views: list[memoryview], rings: RingSet, home: Home) -> dict[str, Any]:
    """What a written function knows, by name."""
    ring = rings.numbers.ring
    plain, indexed = _tags(known, views)
    payload = sum(view.nbytes for view in views)
    size = padded(HEAD.size + payload)
    return {
        "now": time_ns, "array": sys.modules["numpy"].ndarray, "missing": object(), "fence": FENCE,
        "other": home.envs, "waiting": home.waiting,
        "limit": _MAX_INDEX, "least": -_MAX_INDEX, "prime": PRIME,
        "plain": plain, "indexed": indexed,
        "size": size, "step": ONE + size // ALIGN, "published": W_PUBLISHED,
        "sum": summing(payload), "pack": _pack,
        "chute": rings.numbers, "ring": ring, "token": ring.token, "memory": ring.view, "words": ring.words,
        **{f"as_{_LETTERS[view.format]}": ring.file.typed(view.format) for view in views},
    }  # fmt: skip

"""Functions that are written for one form: its names are their parameters, its sizes constants in them.

Binding names as parameters costs a third of a dict, binding by place a third of that. What such a function
does is in `_BODY`: one call encodes numbers, moment and index, one sum covers them, one call writes head and
payload, one store publishes.

Rules: never raises by itself but for what `other` raises, which takes whatever a function was not written
for. The token is back whatever interrupts: an interruption comes after a call, so one that comes within the
`try` comes after the token was taken. Must not know the catalogue.
"""

import builtins
import functools
import keyword
from collections.abc import Callable, Sized
from dataclasses import dataclass
from struct import Struct
from time import time_ns
from typing import Any, Final, Protocol

import msgspec

from overwatch.sdk.rings import compiled
from overwatch.sdk.rings.chute import Chute
from overwatch.sdk.rings.file import FENCE
from overwatch.sdk.rings.layout import ALIGN, HEAD, INDEXED, ONE, W_PUBLISHED, Kind, padded, summing, tag
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.stamped import NUMBER, first_number, room, start
from overwatch.sdk.rings.writer import Entry

MAX_WRITTEN: Final = compiled.MAX_NAMES
"""Names of the largest update that a function is written for."""
MAX_CHAIN: Final = 4
"""Functions that are asked one after the other; a trainer has one or two kinds of updates."""
_PREFIX: Final = "_ow_"
_encode: Final = msgspec.msgpack.Encoder().encode
_STAMPED_HEAD: Final = "<IIQ16xQ"
"""As `HEAD`, with zeros for moment and index."""


class Update(Protocol):
    """`run.update`."""

    def __call__(self, /, *, update: int | None = None, **values: Any) -> None:
        """Numbers of one policy update, by their short names."""


class Updater(Protocol):
    """What `run.updater` gives."""

    def __call__(self, *values: Any, update: int | None = None) -> None:
        """Numbers of one policy update, in the order of their names."""


class Latest:
    """The number of the last update: a slot, which is stored to in a quarter of an attribute's time."""

    __slots__ = ("update",)

    def __init__(self) -> None:
        self.update: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A form that functions are written for."""

    names: tuple[str, ...]
    """As the trainer calls them."""
    number: int


_BODY: Final = """
def written({parameters}):
    {odd}
    if type(update) is not int and update is not None:
        _ow_data = b""
    else:
        _ow_at = _ow_now()
        try:
            _ow_data = _ow_encode(({names}, _ow_at, update))
        except Exception:
            _ow_data = b""
    if _ow_data[_ow_every] != {tags} or _ow_more{waiting}:
        {other}
    _ow_latest.update = update
    try:
        _ow_token.pop()
        _ow_off = _ow_ring.off
        _ow_end = _ow_off + {size}
        if _ow_end > _ow_ring.limit:
            _ow_take(_ow_entry(({names},), _ow_at, update, {form}))
        else:
            _ow_word = _ow_ring.word + {step}
            _ow_pack(
                _ow_view, _ow_off, {length}, _ow_sum(_ow_data, {start}), _ow_word, {tag}, _ow_data
            )
            {fence}
            _ow_words[{published}] = _ow_word
            _ow_ring.word = _ow_word
            _ow_ring.off = _ow_end
    except IndexError:
        return _ow_chute.set_aside(_ow_entry(({names},), _ow_at, update, {form}))
    except BaseException:
        try:
            _ow_chute.recover()
        finally:
            _ow_token.append(None)
        raise
    _ow_token.append(None)
    if _ow_aside:
        _ow_chute.flush()
"""


def by_name(form: Named, rings: RingSet, latest: Latest, other: Update) -> Update:
    """`run.update` for one form; values it was not written for go to `other`."""
    if (made := _compiled(form, rings, latest, None, other)) is not None:
        return made
    places = {name: name if is_parameter(name) else f"{_PREFIX}{i}" for i, name in enumerate(form.names)}
    pairs = ", ".join(f"{name!a}: {place}" for name, place in places.items())
    parts = {
        "parameters": "*, update=None, "
        + "".join(f"{name}=_ow_missing, " for name in form.names if is_parameter(name))
        + "**_ow_more",
        "odd": "; ".join(
            f"{place} = _ow_more.pop({name!a}, _ow_missing)"
            for name, place in places.items()
            if not is_parameter(name)
        ),
        "waiting": "",
        "other": "return _ow_other(update=update, "
        f"**{{k: v for k, v in {{{pairs}}}.items() if v is not _ow_missing}}, **_ow_more)",
    }
    written: Update = _written(form, list(places.values()), parts, rings, {"other": other, "latest": latest})
    return written


def by_place(form: Named, rings: RingSet, latest: Latest, waiting: Sized, other: Updater) -> Updater:
    """A function that takes numbers by place; the rest, and all while anything waits, goes to `other`."""
    if (made := _compiled(form, rings, latest, waiting, other)) is not None:
        return made
    places = [f"{_PREFIX}{i}" for i in range(len(form.names))]
    parts = {
        "parameters": "".join(f"{place}=_ow_missing, " for place in places) + "/, *_ow_more, update=None",
        "odd": "",
        "waiting": " or _ow_waiting",
        "other": f"return _ow_other(*(v for v in ({', '.join(places)},) if v is not _ow_missing), "
        "*_ow_more, update=update)",
    }
    scope = {"other": other, "waiting": waiting, "latest": latest}
    written: Updater = _written(form, places, parts, rings, scope)
    return written


def _compiled(
    form: Named, rings: RingSet, latest: Latest, waiting: Sized | None, other: Update | Updater
) -> Callable[..., None] | None:
    chute, number = rings.numbers, form.number

    def put(numbers: tuple[float, ...], at: int, index: int | None) -> None:
        chute.put(_entry(numbers, at, index, number))

    said = compiled.Numbers(form.names, number, room(len(form.names)), _tag(form))
    return compiled.update(said, rings, put=put, latest=latest, waiting=waiting, other=other)


def _tag(form: Named) -> int:
    return tag(int(Kind.STAMPED), form.number, len(form.names))


def _written(
    form: Named, places: list[str], parts: dict[str, str], rings: RingSet, scope: dict[str, object]
) -> Any:
    count = len(form.names)
    payload, first = room(count), first_number(count + 2)
    length, ring = HEAD.size + payload, rings.numbers.ring
    which = _tag(form)
    sizes = {
        "names": ", ".join(places), "tags": repr(b"\xcb" * count + b"\xcf"), "length": length,
        "size": padded(length), "step": ONE + padded(length) // ALIGN, "start": start(which), "tag": which,
        "published": W_PUBLISHED, "form": form.number, "fence": "" if FENCE is None else "_ow_fence()",
    }  # fmt: skip
    known = scope | {
        "now": time_ns, "encode": _encode, "sum": summing(payload), "entry": _entry, "fence": FENCE,
        "missing": msgspec.Raw(b"\xc0"), "chute": rings.numbers,
        "take": functools.partial(_take, rings.numbers), "aside": rings.numbers.aside,
        "ring": ring, "token": ring.token, "view": ring.view, "words": ring.words,
        "pack": Struct(f"{_STAMPED_HEAD}{payload}s").pack_into,
        "every": slice(first, first + NUMBER * (count + 1), NUMBER),
    }  # fmt: skip
    made: dict[str, Any] = {f"{_PREFIX}{name}": value for name, value in known.items()}
    exec(_BODY.format(**parts, **sizes), made)  # noqa: S102 the text is ours; names in it are identifiers
    return made["written"]


def _entry(numbers: tuple[float, ...], at: int, index: int | None, form: int) -> Entry:
    """A record as the long way makes it, for what is folded or lies aside."""
    if index is None:
        return Entry(Kind.UPDATE, at, _encode(numbers), 0, form)
    return Entry(Kind.UPDATE | INDEXED, at, _encode(numbers), index, form)


def _take(chute: Chute, entry: Entry) -> None:
    """Its `take`; an `IndexError` of that must not be read as if another had the token."""
    try:
        chute.take(entry)
    except IndexError as error:
        raise RuntimeError("a ring has lost count") from error


def is_parameter(name: str) -> bool:
    """Whether a name can be a parameter and hides nothing that a written function uses."""
    plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return plain and name[0] != "_" and name != "update" and not hasattr(builtins, name)

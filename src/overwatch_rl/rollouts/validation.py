"""What is wrong with a body, by the path of the field: `scores[3]: NaN ...`.

Rules: a group is decoded to its keys; rows of numbers are decoded one by one and stay as they were written,
and everything else is encoded again, so that whoever can read JSON can read what is served. In a list each
group is judged by itself. A fault costs no more than a good group does. Must not know HTTP or the queue.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from overwatch_rl.rollouts.answers import ANONYMOUS, Offer
from overwatch_rl.rollouts.wire import OPTIONAL, Head, Mask, Token, Whole
from overwatch_rl.web.faults import MOST_TOKENS, TOKEN, Fault, InvalidError, canonical, decode

MOST_GROUPS: Final = 4096
"""Most groups of one list."""
MOST_PARTS: Final = 1 << 20
"""Most lists, objects and pairs of strings in a body: each costs many times its bytes."""
MOST_KEYS: Final = 1 << 10
"""Most keys of a group."""
MOST_SEQUENCES: Final = 1 << 16
"""Most rows of a group."""

_KEYS: Final = msgspec.json.Decoder(dict[str, Raw])
_HEAD: Final = msgspec.json.Decoder(Head)
_INTEGER: Final = msgspec.json.Decoder(int)
_REQUIRED: Final = ("tokens", "masks", "scores")
_LARGE: Final = 1 << 16
"""Bytes of a list of rows that is looked through before anything is made of its elements."""


class _Object(msgspec.Struct):
    """Any object."""


class _List(msgspec.Struct, array_like=True):
    """Any list."""


_LISTS: Final = msgspec.json.Decoder(list[_List])
_OBJECTS: Final = msgspec.json.Decoder(list[_Object])
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_ANY: Final = msgspec.json.Decoder(list[Any])
_TOKENS: Final = msgspec.json.Decoder(list[Token])
_NUMBERS: Final = msgspec.json.Decoder(list[Whole | float])


class _Rows(NamedTuple):
    """A key whose value is a list of rows, or one row."""

    row: msgspec.json.Decoder[Any]
    is_one: bool = False


_ROWS: Final[Mapping[str, _Rows]] = {
    "tokens": _Rows(_TOKENS),
    "masks": _Rows(msgspec.json.Decoder(list[Mask])),
    "scores": _Rows(_NUMBERS, is_one=True),
    "advantages": _Rows(_NUMBERS),
    "ref_logprobs": _Rows(_NUMBERS),
    "inference_logprobs": _Rows(_NUMBERS),
    "distill_token_ids": _Rows(msgspec.json.Decoder(list[list[Token]])),
    "distill_logprobs": _Rows(msgspec.json.Decoder(list[list[Whole | float]])),
}
_ABSENT: Final = (b"null", b"[]")
"""What published clients send where there are no rows."""
_PER_TOKEN: Final = frozenset(("masks", "advantages", "ref_logprobs", "inference_logprobs"))
FIXES: Final = {
    "env_id": "send the id that /register-env answered",
    "scores": "score every sequence with a finite number",
}
"""What to do about a field that is wrong."""


def one(body: bytes, longest: int) -> Offer:
    """The group of a body, or what is wrong; `longest` is the most tokens of a sequence, 0 for no limit."""
    try:
        _check_size(body)
    except InvalidError as error:
        return Offer(fault=error.fault)
    try:
        return _group(decode(body, _KEYS, FIXES), longest)
    except InvalidError as error:
        return _measured(body, error.fault)


def several(body: bytes, longest: int) -> list[Offer]:
    """Each group of a list, or what is wrong with it; raises `InvalidError` where the body is no list."""
    _check_size(body)
    found = elements(body, MOST_GROUPS + 1)
    if len(found) > MOST_GROUPS:
        raise InvalidError(Fault("", f"has too many groups; send at most {MOST_GROUPS} in a request"))
    return [placed(one(each, longest), number) for number, each in enumerate(found)]


def elements(body: bytes, most: int) -> list[bytes]:
    """The bytes of each element of a list of objects, `most` at least where it has more.

    An element that is wrong is one of them. Raises `InvalidError` where the body is no list.
    """
    try:
        _OBJECTS.decode(body)
        return [bytes(raw) for raw in _RAWS.decode(body)]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _pieces(body, most)


def _pieces(body: bytes, most: int) -> list[bytes]:
    if body.lstrip()[:1] != b"[":
        what = "is no list; send a list of groups, or one group to /scored_data"
        raise InvalidError(Fault("", what if body else "is empty; send JSON"))
    found: list[bytes] = []
    depth = start = 0
    for number, token in enumerate(TOKEN.finditer(body)):
        at, end = token.span()
        first = body[at]
        if number == MOST_TOKENS or len(found) >= most:
            break
        if first in b"[{":
            depth += 1
            start = end if depth == 1 else start
        elif first in b"]}":
            depth -= 1
            if depth == 0 and not body[end:].strip():
                return [*found, last] if (last := body[start:at].strip()) or found else []
        elif depth == 1 and first != ord('"'):
            while len(found) < most and (comma := body.find(b",", max(at, start), end)) >= 0:
                found.append(body[start:comma].strip())
                start = comma + 1
    if len(found) >= most:
        return found
    raise InvalidError(Fault("", "is no whole list of JSON that can be read; send fewer groups"))


def without_literals(body: bytes) -> bytes:
    """A body with 0 in the place of NaN and Infinity."""
    for literal in (b"-Infinity", b"Infinity", b"NaN"):
        body = body.replace(literal, b"0")
    return body


def placed(group: Offer, number: int) -> Offer:
    """A group of a list: its fault is named by its place there."""
    if group.fault is None:
        return group
    return msgspec.structs.replace(group, fault=group.fault.within(f"[{number}]"))


def _check_size(body: bytes) -> None:
    """Raise where the parts of a body, not its bytes, would fill the memory."""
    parts = body.count(b"[") + body.count(b"{") + body.count(b'"') // 4
    if parts > MOST_PARTS:
        message = f"has {parts} lists, objects and pairs of strings; send at most {MOST_PARTS} in a request"
        raise InvalidError(Fault("", message))


def _group(keys: dict[str, Raw], longest: int) -> Offer:
    """Raises `InvalidError`."""
    if len(keys) > MOST_KEYS:
        raise InvalidError(Fault("", f"has {len(keys)} keys; send at most {MOST_KEYS}"))
    for name in _REQUIRED:
        if name not in keys:
            raise InvalidError(Fault("", f"Object missing required field `{name}`"))
    lengths: dict[str, list[int]] = {}
    values: dict[str, bytes] = {}
    for name, raw in keys.items():
        value = bytes(raw)
        try:
            if name not in _ROWS:
                value = canonical(value)
            elif name in _REQUIRED or value not in _ABSENT:
                lengths[name] = _lengths(value, _ROWS[name])
        except InvalidError as error:
            raise InvalidError(_within(name, error.fault)) from error
        values[name] = value
    head = decode(_object({name: values[name] for name in values if name not in _ROWS}), _HEAD, FIXES)
    _check_shape(head, lengths, longest)
    absent = dict.fromkeys((name for name in OPTIONAL if name not in values), b"null")
    return Offer(
        env_id=ANONYMOUS if head.env_id in (None, UNSET) else head.env_id,
        sequences=len(lengths["tokens"]),
        tokens=sum(lengths["tokens"]),
        version=head.version,
        ticket=head.ticket,
        body=_object(values | absent),
    )


def _lengths(value: bytes, rows: _Rows) -> list[int]:
    """How many values each row has, of which one at a time is objects; raise `InvalidError`."""
    if rows.is_one:
        return [len(decode(value, rows.row))]
    if len(value) > _LARGE:
        decode(value, _LISTS)
    lengths: list[int] = []
    raws: list[Raw] = decode(value, _RAWS)
    for number, row in enumerate(raws):
        try:
            lengths.append(len(decode(bytes(row), rows.row)))
        except InvalidError as error:
            raise InvalidError(error.fault.within(f"[{number}]")) from error
    return lengths


def _within(name: str, fault: Fault) -> Fault:
    fault = fault.within(name[:60])
    fix = FIXES.get(name)
    return Fault(fault.path, f"{fault.message}; {fix}") if fix else fault


def _object(values: Mapping[str, bytes]) -> bytes:
    parts = (msgspec.json.encode(name) + b":" + value for name, value in values.items())
    return b"{" + b",".join(parts) + b"}"


def _measured(body: bytes, fault: Fault) -> Offer:
    """A refused group with its sender and its size, as far as they can be read."""
    try:
        keys = _KEYS.decode(without_literals(body))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Offer(fault=fault)
    try:
        lengths = _lengths(bytes(keys["tokens"]), _Rows(_ANY))
    except (InvalidError, LookupError):
        lengths = []
    env_id, ticket = _integer(keys, "env_id"), _integer(keys, "ticket")
    return Offer(
        env_id=ANONYMOUS if env_id is None else env_id,
        sequences=len(lengths),
        tokens=sum(lengths),
        ticket=ticket,
        fault=fault,
    )


def _integer(keys: Mapping[str, Raw], name: str) -> int | None:
    try:
        return _INTEGER.decode(keys[name])
    except (msgspec.MsgspecError, LookupError, ValueError):
        return None


def _check_shape(head: Head, lengths: Mapping[str, list[int]], longest: int) -> None:
    """Raise `InvalidError` for rows that do not belong together."""
    tokens = lengths["tokens"]
    if not 0 < len(tokens) <= MOST_SEQUENCES:
        most = f"has {len(tokens)} rows; send at most {MOST_SEQUENCES}"
        raise InvalidError(Fault("tokens", most if tokens else "Expected `array` of length >= 1"))
    rows = {name: found for name in ("messages", "overrides") if (found := getattr(head, name))}
    counts = {name: len(found) for name, found in (*lengths.items(), *rows.items())}
    counts["scores"] = lengths["scores"][0]
    for name, count in counts.items():
        if count != len(tokens):
            message = f"has {count} rows for {len(tokens)} sequences; send one for each sequence of tokens"
            raise InvalidError(Fault(name, message))
    for name in _PER_TOKEN.intersection(lengths):
        for number, (found, length) in enumerate(zip(lengths[name], tokens, strict=True)):
            if found != length:
                message = f"has {found} values for {length} tokens; send one for each token"
                raise InvalidError(Fault(f"{name}[{number}]", message))
    for number, length in enumerate(tokens):
        if not length:
            raise InvalidError(Fault(f"tokens[{number}]", "is empty; send at least one token a sequence"))
        if 0 < longest < length:
            message = f"has {length} tokens; the trainer takes at most {longest}"
            raise InvalidError(Fault(f"tokens[{number}]", message))

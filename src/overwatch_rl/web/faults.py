"""What is wrong with a body of JSON, by the path of the field: `scores[3]: NaN ...`.

Rules: a body is decoded at once; where the decoder stops, one bounded pass over the bytes before names the
place. Nothing is built of a body that is wrong, and a message never repeats more than `_SHOWN` characters of
it. Python's own JSON sends the literals NaN, Infinity and -Infinity, which are named as what they are. Pure.
Must not know HTTP or what a body is for.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

DEEPEST: Final = 64
"""Most levels of lists and objects in a value that is passed on: every common reader takes as many."""
_SHOWN: Final = 60
"""So many characters of a wrong value are shown."""
_LONGEST: Final = 400
"""Most characters of a message, and of a path."""
_SMALL: Final = 1 << 16
"""Bytes of a body whose wrong value is looked up, to be shown."""
MOST_TOKENS: Final = 1 << 20
"""Strings, brackets and gaps between them that are passed to name a place; beyond it the byte is named."""
TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]|[^"\[\]{}]++', re.DOTALL)
_BYTE: Final = re.compile(r" \(byte (\d+)\)")
_LITERAL: Final = re.compile(rb"NaN|Infinity")
_STEPS: Final = re.compile(r"([^.\[\]]+)(?=[.\[]|$)|\[(\d+)\]")
"""Of a path: a name, or the number in brackets."""
_HALF_PAIR: Final = re.compile(
    rb"\\u[dD][89abAB]\w\w(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]\w\w)\\u[dD][c-fC-F]\w\w", re.ASCII
)
"""An escape of one half of a character: Python sends it for bytes that were no text."""


class Fault(msgspec.Struct, frozen=True):
    """One field that is wrong."""

    path: str
    """Where, e.g. `scores[3]`, or `[1].scores[3]` in a list; empty for the whole body."""
    message: str
    """What is wrong, and the fix."""

    def __str__(self) -> str:
        return f"{self.path or 'body'}: {self.message}"

    def within(self, prefix: str) -> "Fault":
        """The same fault of a value that stands at `prefix`."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return Fault(prefix + dot + self.path, self.message)


_ANY: Final = msgspec.json.Decoder()


class RefusedError(ValueError):
    """What was asked is not done, and why: an answer, no fault of ours."""

    status = 422

    def __init__(
        self, message: str, path: str | None = None, *, status: int | None = None,
        retry_s: float | None = None, body: object = None,
    ) -> None:  # fmt: skip
        """`path` is the field, `retry_s` when to ask again, `body` the answer if it has more."""
        super().__init__(message)
        self.path, self.retry_s, self.body = path, retry_s, body
        self.status = status or self.status


class InvalidError(RefusedError):
    """A body that cannot be used."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault), fault.path)
        self.fault = fault


def decode(body: bytes, decoder: msgspec.json.Decoder[T], fixes: Mapping[str, str] | None = None) -> T:
    """A body as what `decoder` is of; raises `InvalidError`. `fixes`: what to do, by the field's name."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidError(named(str(error), body, fixes or {})) from error
    except UnicodeDecodeError as error:
        raise InvalidError(_not_text(body)) from error
    except RecursionError as error:
        raise InvalidError(Fault("", "is nested too deeply; send flat lists of rows")) from error
    except msgspec.DecodeError as error:
        raise InvalidError(_malformed(str(error), body)) from error


def canonical(value: bytes) -> bytes:
    """JSON that every reader takes alike, of JSON that passes through; raises `InvalidError`.

    Text is UTF-8, a key of an object is there once (the last one counts), a number fits 64 bits, and nothing
    is nested deeper than `DEEPEST`.
    """
    found = decode(value, _ANY)
    if value.count(b"[") + value.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
        raise InvalidError(Fault("", f"is nested deeper than {DEEPEST} levels; send it flatter, or as text"))
    try:
        msgspec.msgpack.encode(found)
    except OverflowError as error:
        message = "has an integer of more than 64 bits; send it as text"
        raise InvalidError(Fault("", message)) from error
    return msgspec.json.encode(found)


def place(body: bytes, at: int) -> str:
    """The path of what begins at a byte of JSON that is right until there; empty if that takes too long.

    Of a key it is the path of its object.
    """
    steps: list[int | str] = []
    name = b""
    for number, token in enumerate(TOKEN.finditer(body, 0, at)):
        start, end = token.span()
        first = body[start]
        if number == MOST_TOKENS:
            return ""
        if first == ord('"'):
            name = body[start : min(end, start + _SHOWN)]
        elif first in b"[{":
            steps.append(0 if first == ord("[") else "")
        elif first in b"]}":
            steps.pop()
        elif steps and isinstance(steps[-1], int):
            steps[-1] += body.count(b",", start, end)
        elif steps:
            colon, comma = body.find(b":", start, end), body.rfind(b",", start, end)
            if comma > colon:
                steps[-1] = ""  # what follows is a key
            elif colon >= 0:
                steps[-1] = name.decode(errors="replace").strip('"')
    if steps and steps[-1] == "":
        steps.pop()
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")[:_LONGEST]


def _depth(body: bytes) -> int:
    """Levels of lists and objects of JSON that is right."""
    depth = most = 0
    for token in TOKEN.finditer(body):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
            most = max(most, depth)
        elif first in b"]}":
            depth -= 1
    return most


def _malformed(message: str, body: bytes) -> Fault:
    """A fault from msgspec's words: `JSON is malformed: invalid character (byte 12)`."""
    if not body:
        return Fault("", "is empty; send JSON")
    stopped = _BYTE.search(message)
    at = int(stopped[1]) if stopped else len(body)
    literal = _LITERAL.match(body, at)
    if literal is not None:
        sign = "-" if body[at - 1 : at] == b"-" else ""
        what = f"{sign}{literal[0].decode()} is no JSON number; send a finite number, or leave the key out"
        return Fault(place(body, at), what)
    half = _HALF_PAIR.search(body)
    if half is not None:
        what = f"{half[0].decode()} is half a character; send text that is whole, in UTF-8"
        return Fault(place(body, half.start()), what)
    return Fault("", f"is no JSON that can be read: {message}")


def _not_text(body: bytes) -> Fault:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 at byte {error.start}; send JSON in UTF-8"
        return Fault(place(body, error.start), what)
    return Fault("", "is not UTF-8; send JSON in UTF-8")


def named(message: str, body: bytes, fixes: Mapping[str, str]) -> Fault:
    """A fault from msgspec's words: `Expected int - at $.tokens[0][1]`, the path in backticks."""
    what, _, path = message.partition(" - at `")
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")[:_LONGEST]
    value = _at(path, body) if path and len(body) <= _SMALL else None
    if isinstance(value, str | int | float):
        what = f"{what}: {msgspec.json.encode(value).decode()[:_SHOWN]}"
    fix = fixes.get(path.partition("[")[0])
    return Fault(path, (f"{what}; {fix}" if fix else what)[:_LONGEST])


def _at(path: str, body: bytes) -> object:
    """What stands at `tokens[0][1]`, `None` where that cannot be seen."""
    try:
        value = _ANY.decode(body)
        for name, number in _STEPS.findall(path):
            value = value[int(number)] if number else value[name]
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return value

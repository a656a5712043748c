"""What is wrong with a body of JSON, by the path of the field: `scores[3]: NaN ...`.

Rules: a body is decoded at once; one that is wrong is read again, slowly, to name the fault. Python's own
JSON sends the literals NaN, Infinity and -Infinity, so they are read here and refused where they stand. Pure.
Must not know HTTP or what a body is for.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

READER: Final = json.JSONDecoder()
"""Python's own, which takes the literals."""
_STEPS: Final = re.compile(r"([^.\[\]]+)(?=[.\[]|$)|\[(\d+)\]")
"""Of a path: a name, or the number in brackets."""
_SHOWN: Final = 60
"""So many characters of a wrong value are shown."""


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


class InvalidError(ValueError):
    """A body that cannot be used."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def decode(body: bytes, decoder: msgspec.json.Decoder[T], fixes: Mapping[str, str] | None = None) -> T:
    """A body as what `decoder` is of; raises `InvalidError`. `fixes`: what to do, by the field's name."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidError(_named(str(error), body, fixes or {})) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        for path, literal in _literals(parsed(body)):
            message = f"{literal} is no JSON number; send a finite number, or leave the key out"
            raise InvalidError(Fault(path, message)) from error
        raise InvalidError(Fault("", f"is no JSON that can be read: {error}")) from error


def text_of(body: bytes) -> str:
    """A body as text; raises `InvalidError` where it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidError(Fault("", f"is not UTF-8 at byte {error.start}; send JSON in UTF-8")) from error


def parsed(body: bytes) -> object:
    """What the body holds, its literals kept; raises `InvalidError` where it is no JSON."""
    try:
        return READER.decode(text_of(body))
    except json.JSONDecodeError as error:
        message = f"is no JSON: {error.msg} at character {error.pos}" if body else "is empty; send JSON"
        raise InvalidError(Fault("", message)) from error
    except ValueError as error:
        raise InvalidError(Fault("", f"has a number that cannot be read: {error}")) from error
    except RecursionError as error:
        raise InvalidError(Fault("", "is nested too deeply; send flat lists of rows")) from error


def _named(message: str, body: bytes, fixes: Mapping[str, str]) -> Fault:
    """A fault from msgspec's words: `Expected int - at $.tokens[0][1]`, the path in backticks."""
    what, _, path = message.partition(" - at `")
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    value = _at(path, body) if path else None
    if isinstance(value, str | int | float):
        what = f"{what}: {json.dumps(value)[:_SHOWN]}"
    fix = fixes.get(path.partition("[")[0])
    return Fault(path, f"{what}; {fix}" if fix else what)


def _at(path: str, body: bytes) -> object:
    """What stands at `tokens[0][1]`, `None` where that cannot be seen."""
    try:
        value = parsed(body)
        for name, number in _STEPS.findall(path):
            value = value[int(number)] if number else value[name]  # type: ignore[index]
    except (InvalidError, LookupError, TypeError, ValueError):
        return None
    return value


def _literals(value: object) -> Iterator[tuple[str, str]]:
    """Literals, each after where it stands, in order; a number too large for a float is one of them."""
    left: list[tuple[str, object]] = [("", value)]
    while left:
        path, value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            yield path, "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        elif isinstance(value, list):
            left += reversed([(f"{path}[{number}]", inner) for number, inner in enumerate(value)])
        elif isinstance(value, dict):
            dot = "." if path else ""
            left += reversed([(f"{path}{dot}{name}", inner) for name, inner in value.items()])

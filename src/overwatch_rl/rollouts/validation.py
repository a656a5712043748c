"""What is wrong with a body, by the path of the field: `scores[3]: NaN ...`.

Rules: a body that is plain is scanned and its shapes are compared; any other is decoded to its last number,
and one that is wrong is read again, slowly, to name the fault. In a list each group is judged by itself.
Python's own JSON sends the literals NaN, Infinity and -Infinity, so they are read here and refused where they
stand. Must not know HTTP or the queue.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from overwatch_rl.rollouts.scanning import scanned
from overwatch_rl.rollouts.wire import Scored

T = TypeVar("T")

MOST_GROUPS: Final = 4096
"""Most groups of one list."""

_SCORED: Final = msgspec.json.Decoder(Scored)
_LIST: Final = msgspec.json.Decoder(list[Raw])
_STEPS: Final = re.compile(r"([^.\[\]]+)(?=[.\[]|$)|\[(\d+)\]")
"""Of a path: a name, or the number in brackets."""
_SHOWN: Final = 60
"""So many characters of a wrong value are shown."""
_SPACE: Final = " \t\n\r"
_PER_TOKEN: Final = ("advantages", "ref_logprobs", "inference_logprobs")
_PER_SEQUENCE: Final = ("messages", "overrides", "distill_token_ids", "distill_logprobs")
_FIXES: Final = {
    "env_id": "send the id that /register-env answered",
    "scores": "score every sequence with a finite number",
}


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


class Valid(msgspec.Struct, frozen=True, gc=False):
    """A group that can be queued."""

    group: Scored
    """Its rows may be ranges of their length."""
    raw: bytes
    """The sender's own bytes."""

    @property
    def sequences(self) -> int:
        """How many sequences it has."""
        return len(self.group.tokens)

    @property
    def token_count(self) -> int:
        """How many tokens its sequences have together."""
        return sum(map(len, self.group.tokens))


class Invalid(msgspec.Struct, frozen=True):
    """A group that cannot be queued, and what is known of it."""

    fault: Fault
    env_id: int | None = None
    sequences: int = 0
    token_count: int = 0
    ticket: int | None = None
    """It is used up: nothing comes under it any more, and a batch must not wait for it."""


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A body as what `decoder` is of; raises `InvalidError`."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidError(_named(str(error), body)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        for path, literal in _literals(_parsed(body)):
            message = f"{literal} is no JSON number; send a finite number, or leave the key out"
            raise InvalidError(Fault(path, message)) from error
        raise InvalidError(Fault("", f"is no JSON that can be read: {error}")) from error


def one(body: bytes, longest: int) -> Valid | Invalid:
    """The group of a body, or what is wrong; `longest` is the most tokens of a sequence, 0 for no limit."""
    plain = scanned(body)
    if plain is not None and _shape(plain, longest) is None:
        return Valid(plain, body)
    try:
        group = decode(body, _SCORED)
    except InvalidError as error:
        return _measured(body, error.fault)
    fault = _shape(group, longest)
    return Valid(group, body) if fault is None else _measured(body, fault)


def several(body: bytes, longest: int) -> list[Valid | Invalid]:
    """Each group of a list, or what is wrong with it; raises `InvalidError` where the body is no list."""
    try:
        raws: Sequence[bytes] = [bytes(raw) for raw in _LIST.decode(body)]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raws = list(_elements(body))
    if len(raws) > MOST_GROUPS:
        raise InvalidError(Fault("", f"has {len(raws)} groups; send at most {MOST_GROUPS} in a request"))
    return [_placed(one(raw, longest), number) for number, raw in enumerate(raws)]


def _placed(group: Valid | Invalid, number: int) -> Valid | Invalid:
    if isinstance(group, Valid):
        return group
    return msgspec.structs.replace(group, fault=group.fault.within(f"[{number}]"))


def _measured(body: bytes, fault: Fault) -> Invalid:
    """A refused group with its sender and its size, as far as they can be read."""
    try:
        value = _parsed(body)
    except InvalidError:
        return Invalid(fault)
    if not isinstance(value, dict):
        return Invalid(fault)
    env_id, rows = value.get("env_id"), value.get("tokens")
    rows = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    ticket = value.get("ticket")
    return Invalid(
        fault,
        env_id if type(env_id) is int else None,
        len(rows),
        sum(map(len, rows)),
        ticket if type(ticket) is int else None,
    )


def _shape(group: Scored, longest: int) -> Fault | None:
    """Rows that do not belong together, `None` where all do."""
    lengths = [len(row) for row in group.tokens]
    if len(group.scores) != len(lengths):
        return _counted("scores", len(group.scores), len(lengths))
    if len(group.masks) != len(lengths):
        return _counted("masks", len(group.masks), len(lengths))
    fault = _rows("masks", group.masks, lengths)
    if fault is not None:
        return fault
    for number, length in enumerate(lengths):
        if not length:
            return Fault(f"tokens[{number}]", "is empty; send at least one token a sequence")
        if 0 < longest < length:
            return Fault(f"tokens[{number}]", f"has {length} tokens; the trainer takes at most {longest}")
    for name in _PER_SEQUENCE:
        rows = getattr(group, name)
        if rows and len(rows) != len(lengths):
            return _counted(name, len(rows), len(lengths))
    for name in _PER_TOKEN:
        rows = getattr(group, name)
        if rows:
            fault = (
                _rows(name, rows, lengths)
                if len(rows) == len(lengths)
                else _counted(name, len(rows), len(lengths))
            )
            if fault is not None:
                return fault
    return None


def _rows(name: str, rows: Sequence[Sequence[object]], lengths: Sequence[int]) -> Fault | None:
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if len(row) != length:
            return Fault(
                f"{name}[{number}]", f"has {len(row)} values for {length} tokens; send one for each token"
            )
    return None


def _counted(name: str, found: int, sequences: int) -> Fault:
    return Fault(name, f"has {found} rows for {sequences} sequences; send one for each sequence of tokens")


_READER: Final = json.JSONDecoder()


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidError(Fault("", f"is not UTF-8 at byte {error.start}; send JSON in UTF-8")) from error


def _parsed(body: bytes) -> object:
    """What the body says, its literals kept; raises `InvalidError` where it is no JSON."""
    try:
        return _READER.decode(_text(body))
    except json.JSONDecodeError as error:
        message = f"is no JSON: {error.msg} at character {error.pos}" if body else "is empty; send JSON"
        raise InvalidError(Fault("", message)) from error
    except RecursionError as error:
        raise InvalidError(Fault("", "is nested too deeply; send flat lists of rows")) from error


def _elements(body: bytes) -> Iterator[bytes]:
    """The bytes of each element of a JSON list that may hold literals; raises `InvalidError`."""
    if not isinstance(_parsed(body), list):
        raise InvalidError(Fault("", "is no list; send a list of groups, or one group to /scored_data"))
    text = _text(body)
    at = text.index("[") + 1
    while True:
        while text[at] in _SPACE or text[at] == ",":
            at += 1
        if text[at] == "]":
            return
        _, end = _READER.raw_decode(text, at)
        yield text[at:end].encode()
        at = end


def _named(message: str, body: bytes) -> Fault:
    """A fault from msgspec's words: `Expected int - at $.tokens[0][1]`, the path in backticks."""
    what, _, path = message.partition(" - at `")
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    value = _at(path, body) if path else None
    if isinstance(value, str | int | float):
        what = f"{what}: {json.dumps(value)[:_SHOWN]}"
    fix = _FIXES.get(path.partition("[")[0])
    return Fault(path, f"{what}; {fix}" if fix else what)


def _at(path: str, body: bytes) -> object:
    """What stands at `tokens[0][1]`, `None` where that cannot be seen."""
    try:
        value = _parsed(body)
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

"""What is wrong with a body, by the path of the field: `scores[3]: NaN ...`.

Rules: a body that is plain is scanned and its shapes are compared; any other is decoded to its last number,
and one that is wrong is read again, slowly, to name the fault. In a list each group is judged by itself. Must
not know HTTP or the queue.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from overwatch_rl.rollouts.scanning import scanned
from overwatch_rl.rollouts.wire import Scored
from overwatch_rl.web.faults import READER, Fault, InvalidError, decode, parsed, text_of

MOST_GROUPS: Final = 4096
"""Most groups of one list."""

_SCORED: Final = msgspec.json.Decoder(Scored)
_LIST: Final = msgspec.json.Decoder(list[Raw])
_SPACE: Final = " \t\n\r"
_PER_TOKEN: Final = ("advantages", "ref_logprobs", "inference_logprobs")
_PER_SEQUENCE: Final = ("messages", "overrides", "distill_token_ids", "distill_logprobs")
FIXES: Final = {
    "env_id": "send the id that /register-env answered",
    "scores": "score every sequence with a finite number",
}
"""What to do about a field that is wrong."""


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


def one(body: bytes, longest: int) -> Valid | Invalid:
    """The group of a body, or what is wrong; `longest` is the most tokens of a sequence, 0 for no limit."""
    plain = scanned(body)
    if plain is not None and _shape(plain, longest) is None:
        return Valid(plain, body)
    try:
        group = decode(body, _SCORED, FIXES)
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
        value = parsed(body)
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


def _elements(body: bytes) -> Iterator[bytes]:
    """The bytes of each element of a JSON list that may hold literals; raises `InvalidError`."""
    if not isinstance(parsed(body), list):
        raise InvalidError(Fault("", "is no list; send a list of groups, or one group to /scored_data"))
    text = text_of(body)
    at = text.index("[") + 1
    while True:
        while text[at] in _SPACE or text[at] == ",":
            at += 1
        if text[at] == "]":
            return
        _, end = READER.raw_decode(text, at)
        yield text[at:end].encode()
        at = end

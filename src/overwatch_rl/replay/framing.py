"""Large fields of protocol buffers, put in and taken out without the copies that protobuf makes.

A message is a row of fields, each a tag, for bytes and messages a length, and the value. Rules: what is taken
out is a view of the message's own bytes; every length is checked before it is used; the rest of a message is
protobuf's to read. Must not know any message.
"""

from collections.abc import Iterable

from overwatch_rl.replay.chunk import Bytes

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_MOST_VARINT = 10


def varint(value: int) -> bytes:
    """A length as it is written: seven bits a byte, the least first.

    >>> varint(5).hex(), varint(300).hex()
    ('05', 'ac02')
    """
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def framed(number: int, parts: Iterable[Bytes]) -> list[Bytes]:
    """A field of bytes, or of a message, whose value is these parts one after the other."""
    value = list(parts)
    size = sum(memoryview(part).nbytes for part in value)
    return [varint(number << 3 | _LENGTH) + varint(size), *value]


def cut(body: Bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """A message without a field of bytes or messages, and the values of that field in their order.

    Raises `ValueError` where a length goes beyond the message, or a field has no kind of this protocol.
    """
    view = memoryview(body)
    end, at, kept = view.nbytes, 0, 0
    rest: list[memoryview] = []
    found: list[memoryview] = []
    while at < end:
        begin = at
        tag, at = (view[at], at + 1) if view[at] < 0x80 else _read(view, at)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _read(view, at)
            if size > end - at:
                raise ValueError(f"a field of {size} bytes where {end - at} are left")
            if tag >> 3 == number:
                rest.append(view[kept:begin])
                found.append(view[at : at + size])
                kept = at + size
            at += size
        elif kind == _VARINT:
            at = at + 1 if at < end and view[at] < 0x80 else _read(view, at)[1]
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of kind {kind}")
    if at > end:
        raise ValueError("a field goes beyond the message")
    return b"".join([*rest, view[kept:]]), found


def _read(view: memoryview, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    if at < view.nbytes and (first := view[at]) < 0x80:
        return first, at + 1
    value = shift = 0
    for place in range(at, min(at + _MOST_VARINT, view.nbytes)):
        byte = view[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError("a number without an end")

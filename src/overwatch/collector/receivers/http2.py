"""What a client says on one HTTP/2 connection, looked through frame by frame before gRPC reads it.

gRPC's server for event loops ends for good, for every client, at a path that is no text, so none must reach
it, not in a head that is cut short either. Also bounded: how much head a request may have, and how many
frames that carry nothing may come a second, on a connection and from an address. Rules: never waits,
keeps back no more than one head until it is whole, changes nothing of what it lets pass. Must not know calls.
"""

import time
from collections.abc import Callable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_HEAD: Final = 1 << 16
"""Most bytes of one request's head, packed."""
MAX_IDLE_FRAMES: Final = 1000
"""Most frames a second that carry nothing: resets, pings, settings, priorities, empty data."""
MAX_IDLE_FRAMES_PER_PEER: Final = 4000
"""Most such frames a second on all connections of one address; beyond it those end that have many of them."""
IDLE_FRAMES_OF_GOOD: Final = 50
"""So many a second a connection may have whatever others of its address, e.g. of a NAT, do."""

_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 9
_ACK: Final = 0x1
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITIZED = 0x1, 0x4, 0x8, 0x20
_HEADS: Final = frozenset({_HEADERS, _CONTINUATION})
_IDLE: Final = frozenset({_PRIORITY, _RST_STREAM, _SETTINGS, _PING})

_PATHS: Final = frozenset({4, 5})
"""Entries of the static table that are named `:path`."""
_STATIC: Final = 61

_CODES: Final[tuple[tuple[int, bytes], ...]] = (
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b'!"()?'),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\x00$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
)
"""RFC 7541's code up to 15 bits: by length, the bytes in order. What is no plain text has longer codes."""


class Http2Error(Exception):
    """A connection that must end; says why."""


class IdleFrames:
    """The frames that carry nothing of all connections of one address."""

    def __init__(self) -> None:
        self._second, self._count = 0.0, 0

    def add(self, now: float) -> bool:
        """Count one; whether there were more in this second than an address may have."""
        if now - self._second >= 1:
            self._second, self._count = now, 0
        self._count += 1
        return self._count > MAX_IDLE_FRAMES_PER_PEER


class Watch:
    """One connection; `feed` sees every byte that the client says, in order."""

    def __init__(self, now: Callable[[], float] = time.monotonic, peer: IdleFrames | None = None) -> None:
        """`peer` is shared by the connections of an address."""
        self._now = now
        self._peer = IdleFrames() if peer is None else peer
        self._preface = len(PREFACE)
        """Bytes of it that are still to come."""
        self._head = bytearray()
        """The nine bytes before a frame's payload."""
        self._kind, self._flags, self._left = 0, 0, 0
        self._held = bytearray()
        """What came of a head that is not whole yet."""
        self._block: bytearray | None = None
        """The head of a request that is not whole yet."""
        self._payload = bytearray()
        self._second, self._idle = 0.0, 0
        self.asked = False
        """Whether a whole head has come."""
        self.stream = 0
        """The stream of the last frame."""

    def feed(self, data: bytes) -> bytes:
        """Look through what came; returns what may pass, a head once it is whole. Raises `Http2Error`."""
        at = passed = 0
        if self._preface:
            at = min(self._preface, len(data))
            done = len(PREFACE) - self._preface
            if data[:at] != PREFACE[done : done + at]:
                raise Http2Error("this is no HTTP/2")
            self._preface -= at
            passed = at
        while at < len(data):
            at = self._head_of(data, at) if not self._left else self._payload_of(data, at)
            if self._block is None and not (self._left and self._kind in _HEADS):
                passed = at
        if passed == len(data) and not self._held:
            return data
        passing = bytes(self._held + data[:passed]) if passed else b""
        if passed:
            self._held.clear()
        self._held += data[passed:]
        return passing

    def _head_of(self, data: bytes, at: int) -> int:
        took = min(9 - len(self._head), len(data) - at)
        self._head += data[at : at + took]
        if len(self._head) == 9:
            self.stream = int.from_bytes(self._head[5:9]) & 0x7FFFFFFF
            self._left = int.from_bytes(self._head[:3])
            self._kind, self._flags = self._head[3], self._head[4]
            self._head.clear()
            self._begin()
            if not self._left:
                self._end()
        return at + took

    def _payload_of(self, data: bytes, at: int) -> int:
        took = min(self._left, len(data) - at)
        if self._kind in _HEADS:
            self._payload += data[at : at + took]
        self._left -= took
        if not self._left:
            self._end()
        return at + took

    def _begin(self) -> None:
        nothing = self._kind in {_DATA, _CONTINUATION} and not self._left and not self._flags & _END_STREAM
        if self._kind in _IDLE or nothing:
            self._count_idle()
        if (self._kind == _CONTINUATION) is not (self._block is not None):
            raise Http2Error("a head is not told in one piece")
        if self._kind in _HEADS:
            self._payload.clear()
            if len(self._block or b"") + self._left > MAX_HEAD:
                raise Http2Error(f"a request's head is larger than {MAX_HEAD} bytes")

    def _end(self) -> None:
        if self._kind == _HEADERS:
            self._block = _unpadded(self._payload, self._flags)
        elif self._kind == _CONTINUATION and self._block is not None:
            self._block += self._payload
        if self._block is not None and self._flags & _END_HEADERS:
            check(bytes(self._block))
            self._block = None
            self.asked = True

    def _count_idle(self) -> None:
        now = self._now()
        if now - self._second >= 1:
            self._second, self._idle = now, 0
        self._idle += 1
        if self._idle > MAX_IDLE_FRAMES:
            raise Http2Error(f"more than {MAX_IDLE_FRAMES} frames a second carry nothing")
        if self._peer.add(now) and self._idle > IDLE_FRAMES_OF_GOOD:
            raise Http2Error(f"its address has more than {MAX_IDLE_FRAMES_PER_PEER} such frames a second")


def settings() -> bytes:
    """A server's settings, all as HTTP/2 has them, and that it has the client's."""
    return _frame(_SETTINGS, 0, 0, b"") + _frame(_SETTINGS, _ACK, 0, b"")


def refusal(stream: int, reason: str) -> bytes:
    """The answer to a call that is UNAVAILABLE for a reason, and the end of the connection."""
    text = "".join(sign if " " <= sign <= "~" and sign != "%" else "_" for sign in reason)
    headers = (
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
        (b"grpc-message", text.encode()),
    )
    # `:status: 200` of the static table, then names and values as they are.
    block = b"\x88" + b"".join(b"\x00" + _plain(name) + _plain(value) for name, value in headers)
    goaway = stream.to_bytes(4) + bytes(4) + reason.encode()
    return _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, block) + _frame(_GOAWAY, 0, 0, goaway)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _plain(text: bytes) -> bytes:
    """A string of a packed head, of fewer than 254 bytes."""
    text = text[:253]
    return (bytes((len(text),)) if len(text) < 127 else bytes((127, len(text) - 127))) + text


def _unpadded(payload: bytearray, flags: int) -> bytearray:
    start, end = 0, len(payload)
    if flags & _PADDED and payload:
        start, end = 1, end - payload[0]
    start += 5 if flags & _PRIORITIZED else 0
    if start > end:
        raise Http2Error("a head is padded beyond its end")
    return payload[start:end]


def check(block: bytes) -> None:
    """Look through a packed head; raises `Http2Error` where it is broken, or its path no plain text."""
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            _, at = _number(block, at, 7)
        elif first & 0xE0 == 0x20:
            _, at = _number(block, at, 5)
        else:
            entry, at = _number(block, at, 6 if first & 0x40 else 4)
            # What a table of the connection's own names may be a path too.
            is_path = entry in _PATHS or entry > _STATIC
            if not entry:
                name, at = _string(block, at)
                is_path = name in (b":path", None)
            value, at = _string(block, at)
            if is_path and value is None:
                raise Http2Error("a path is no plain text")


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number that begins in the low bits of a byte, and where it ends."""
    value, at = block[at] & (1 << bits) - 1, at + 1
    if value < (1 << bits) - 1:
        return value, at
    for shift in range(0, 28, 7):
        if at >= len(block):
            break
        value += (block[at] & 0x7F) << shift
        at += 1
        if block[at - 1] < 0x80:
            return value, at
    raise Http2Error("a head is broken")


def _string(block: bytes, at: int) -> tuple[bytes | None, int]:
    """A string, `None` where it is no plain text, and where it ends."""
    if at >= len(block):
        raise Http2Error("a head is broken")
    packed = block[at] & 0x80
    size, at = _number(block, at, 7)
    if at + size > len(block):
        raise Http2Error("a head is broken")
    text = block[at : at + size]
    if packed:
        return unpacked(text), at + size
    return text if text.isascii() else None, at + size


def unpacked(text: bytes) -> bytes | None:
    """What a packed string says; `None` where that is no plain text."""
    made = bytearray()
    code, size = 0, 0
    for byte in text:
        for bit in range(7, -1, -1):
            code, size = code << 1 | byte >> bit & 1, size + 1
            if size > _LONGEST:
                return None
            letter = _LETTERS.get((size, code))
            if letter is not None:
                made.append(letter)
                code, size = 0, 0
    return bytes(made)


def _letters() -> dict[tuple[int, int], int]:
    """Each byte by the length and the value of its code."""
    made, code, length = {}, 0, 0
    for size, letters in _CODES:
        code <<= size - length
        length = size
        for letter in letters:
            made[size, code] = letter
            code += 1
    return made


_LETTERS: Final = _letters()
_LONGEST: Final = 15

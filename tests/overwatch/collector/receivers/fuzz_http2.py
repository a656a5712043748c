"""Connections of HTTP/2 as no client of gRPC opens them: frames out of order, of odd kinds, that lie.

Every seed gives the same connections.
"""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from overwatch.collector.signals import WIRES
from tests.overwatch.collector import raw_http2 as h2
from tests.overwatch.collector.receivers.fuzzing import messages
from tests.overwatch.collector.test_fuzz_listeners import mutated

_Make: TypeAlias = Callable[[random.Random], bytes]

PATHS: Final = tuple(f"/{wire.service}/Export" for wire in WIRES.values())
NAMES: Final = (b":path", b":method", b":scheme", b"te", b"grpc-encoding", b"grpc-timeout", b"x-bin", b"")
VALUES: Final = (
    b"", b"trailers", b"gzip", b"identity", b"1S", b"99999999H", b"-1m", b"GET", b"\x00", b"\xff\xfe",
    b"a" * 120,
)  # fmt: skip
_GOAWAY, _WINDOW, _PRIORITY = 7, 8, 2
_PADDED, _PRIORITIZED = 0x8, 0x20


def connections(seed: int) -> Iterator[bytes]:
    """What clients send, connection by connection, without an end."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    known = [sent.body for sent in messages()]
    opened = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"")
    while True:
        stated = b"".join(_some(chance, known) for _ in range(chance.randint(1, 6)))
        match chance.randrange(4):
            case 0:
                yield opened + mutated(chance, stated)
            case 1:
                yield mutated(chance, opened + stated)
            case _:
                yield opened + stated


def _some(chance: random.Random, known: list[bytes]) -> bytes:
    """A whole call, or one strange frame."""
    if chance.random() < 0.4:
        return _call(chance, chance.choice(known))
    return chance.choice(_FRAMES)(chance)


def _stream(chance: random.Random) -> int:
    """A number of a stream: mostly one that may be, also of a server's, none, and the largest."""
    return chance.choice((1, 1, 3, 5, 7, 9, 2, 0, (1 << 31) - 1))


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def _block(chance: random.Random) -> bytes:
    """The head of a call, with headers more, less, twice, or broken."""
    stated = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", chance.choice(PATHS).encode()),
        (b":authority", b"127.0.0.1"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    ]  # fmt: skip
    match chance.randrange(6):
        case 0:
            del stated[chance.randrange(len(stated))]
        case 1:
            stated.insert(chance.randrange(7), (chance.choice(NAMES), chance.choice(VALUES)))
        case 2:
            stated.append(chance.choice(stated))
    block = b"".join(_literal(name, value) for name, value in stated)
    return mutated(chance, block) if chance.random() < 0.2 else block


def _call(chance: random.Random, message: bytes) -> bytes:
    """A call whose message may lie about its length or its packing, and whose head may come in pieces."""
    stream = _stream(chance)
    size = len(message) + (chance.randint(-3, 1000) if chance.random() < 0.2 else 0)
    packing = 1 if chance.random() < 0.1 else 0
    framed = bytes((packing,)) + struct.pack(">I", max(size, 0)) + message
    block = _block(chance)
    if chance.random() < 0.3:
        cut = chance.randint(0, len(block))
        head = h2.frame(h2.HEADERS, 0, stream, block[:cut])
        head += h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, block[cut:])
    else:
        head = h2.frame(h2.HEADERS, h2.END_HEADERS, stream, block)
    cut = chance.randint(0, len(framed))
    return (
        head
        + h2.frame(h2.DATA, 0, stream, framed[:cut])
        + h2.frame(h2.DATA, h2.END_STREAM, stream, framed[cut:])
    )


def _head(chance: random.Random) -> bytes:
    """Headers with padding and priorities, honest or not."""
    flags = chance.choice((h2.END_HEADERS, h2.END_HEADERS | h2.END_STREAM, 0))
    block = _block(chance)
    if chance.random() < 0.5:
        flags |= _PADDED
        padding = chance.choice((0, 1, 5, 255))
        block = bytes((padding,)) + block + bytes(padding if chance.random() < 0.7 else 0)
    if chance.random() < 0.5:
        flags |= _PRIORITIZED
        at = 1 if flags & _PADDED else 0
        block = block[:at] + struct.pack(">IB", _stream(chance), 7) + block[at:]
    return h2.frame(h2.HEADERS, flags, _stream(chance), block)


def _settings(chance: random.Random) -> bytes:
    """Settings of any number and value."""
    pairs = b"".join(
        struct.pack(">HI", chance.randint(0, 9), chance.choice((0, 1, 100, 16384, 1 << 31, (1 << 32) - 1)))
        for _ in range(chance.randint(0, 3))
    )
    return h2.frame(h2.SETTINGS, chance.choice((0, 0, 1)), chance.choice((0, 0, 1)), pairs)


def _window(chance: random.Random) -> bytes:
    """More room, none, or too much."""
    size = chance.choice((0, 1, 65535, (1 << 31) - 1, (1 << 32) - 1))
    return h2.frame(_WINDOW, 0, _stream(chance), struct.pack(">I", size))


def _any(chance: random.Random) -> bytes:
    """A frame of any kind with any payload."""
    return h2.frame(
        chance.randint(0, 12), chance.randrange(256), _stream(chance), chance.randbytes(chance.randint(0, 40))
    )


def _lying(chance: random.Random) -> bytes:
    """A frame that states another length than it has."""
    size = chance.choice((0, 5, 1 << 14, (1 << 14) + 1, (1 << 24) - 1))
    head = struct.pack(">I", size)[1:] + bytes((chance.randint(0, 9), 0)) + struct.pack(">I", _stream(chance))
    return head + chance.randbytes(chance.randint(0, 30))


_FRAMES: Final[tuple[_Make, ...]] = (
    _head,
    _settings,
    _window,
    _any,
    _lying,
    lambda chance: h2.frame(h2.PING, chance.randrange(2), 0, chance.randbytes(chance.choice((8, 8, 7, 0)))),
    lambda chance: h2.frame(h2.RST_STREAM, 0, _stream(chance), struct.pack(">I", chance.randrange(16))),
    lambda chance: h2.frame(_GOAWAY, 0, 0, struct.pack(">II", _stream(chance), 0) + b"why"),
    lambda chance: h2.frame(_PRIORITY, 0, _stream(chance), struct.pack(">IB", _stream(chance), 1)),
    lambda chance: h2.frame(h2.CONTINUATION, h2.END_HEADERS, _stream(chance), _block(chance)),
)

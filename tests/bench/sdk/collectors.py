"""Collectors good and evil: `python -m tests.bench.sdk.collectors KIND PORT OUT`; ends with its input.

Prints its port. `recording` writes each request's arrival and body to OUT, for whoever wants to decode it.
"""

import itertools
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.overwatch.delivery.evil import OK, Call, evil, reply, serving

_HEAD = struct.Struct("<QI")


def hung(call: Call) -> None:
    """Reads, and never answers."""
    call.receive()
    call.hold()


def slow(call: Call) -> None:
    """Reads a kilobyte a second."""
    call.read_slowly(1000)


_REPLIES = (
    b"HTTP/1.1 200",
    b"\x16\x03\x01 what",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
    reply("503 Busy", "Retry-After: 0"),
    reply("429 Slow", "Retry-After: nonsense"),
    reply("302 Found", "Location: http://127.0.0.1:1/"),
    reply("400 Bad", body=b"\xff" * 4096),
    reply("200 OK", "Content-Type: text/html", body=b"<html>" + b"x" * 65536),
    reply("200 OK", body=bytes(1 << 20)),
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
)


def replies() -> Callable[[Call], None]:
    """Answers that are none, too long, cut off or beside the point, one after the other."""
    turn = itertools.cycle(_REPLIES)
    hangs_up = itertools.cycle((True, False, False))

    def script(call: Call) -> None:
        while call.receive() is not None:
            if not call.emit(next(turn)) or next(hangs_up):
                return

    return script


def recording(path: Path) -> Callable[[Call], None]:
    """Takes everything and notes when."""
    lock = threading.Lock()
    out = path.open("ab")

    def script(call: Call) -> None:
        while (requested := call.receive()) is not None:
            if requested.path == "/v1/logs":
                with lock:
                    out.write(_HEAD.pack(time.time_ns(), len(requested.body)) + requested.body)
                    out.flush()
            if not call.emit(OK):
                return

    return script


def recorded(path: Path) -> list[tuple[int, bytes]]:
    """Unix nanoseconds and body of each request that `recording` took."""
    data, found, place = path.read_bytes(), [], 0
    while place + _HEAD.size <= len(data):
        at, length = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        found.append((at, data[place : place + length]))
        place += length
    return found


def script_of(kind: str, out: str) -> Callable[[Call], None]:
    """The script of a kind."""
    match kind:
        case "healthy":
            return serving(OK)
        case "hung":
            return hung
        case "slow":
            return slow
        case "replies":
            return replies()
        case "recording":
            return recording(Path(out))
        case _:
            raise ValueError(f"there is no collector {kind!r}")


def main(kind: str, port: str, out: str) -> None:
    """Serve until the input ends."""
    with evil(script_of(kind, out), port=int(port)) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What is asked about bodies, answered by a process of its own, over the socket that is its stdin.

A request is its head and the body; an answer is its length and so many bytes: of `LINE` the body as a line of
OTLP/JSON, of the others a verdict of `checking`. Numbers are written the lowest byte first. Before anything
is asked it answers once, with its version. It ends when the socket does. Must not know who asks.
"""

import contextlib
import signal
import socket
import struct
import sys
from enum import IntEnum
from typing import BinaryIO, Final, assert_never

from overwatch import __version__
from overwatch.background import give_way
from overwatch.journal import Signal
from overwatch.otlp.checking import verdict
from overwatch.otlp.jsonl import to_json

REQUEST: Final = struct.Struct("<BBII")
"""What is asked, the place of the signal in `SIGNALS`, the most elements of a body, and its length."""
ANSWER: Final = struct.Struct("<I")
VERSION: Final = __version__.encode()
SIGNALS: Final = (Signal.LOGS, Signal.METRICS, Signal.TRACES)


class Asked(IntEnum):
    """What is asked about a body."""

    LINE = 0
    CHECK = 1
    CHECK_JSON = 2
    """The same of a body that is JSON."""


def main() -> int:
    """Answer until nobody asks any more."""
    give_way()
    # A ctrl-c at a terminal is for who asks: it finishes what it has begun.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=sys.stdin.fileno()) as asker, asker.makefile("rb") as requests:
        _answer_all(asker, requests)
    return 0


def _answer_all(asker: socket.socket, requests: BinaryIO) -> None:
    # Who asks may be killed at any moment: then nobody waits for the answer.
    with contextlib.suppress(ConnectionError):
        _say(asker, VERSION)
        while len(head := requests.read(REQUEST.size)) == REQUEST.size:
            asked, place, limit, length = REQUEST.unpack(head)
            body = requests.read(length)
            if len(body) < length:
                break
            _say(asker, _answer(Asked(asked), SIGNALS[place], body, limit))


def _say(asker: socket.socket, answer: bytes) -> None:
    asker.sendall(ANSWER.pack(len(answer)) + answer)


def _answer(asked: Asked, of: Signal, body: bytes, limit: int) -> bytes:
    match asked:
        case Asked.LINE:
            return to_json(of, body)
        case Asked.CHECK | Asked.CHECK_JSON:
            return verdict(of, body, limit, json=asked is Asked.CHECK_JSON)
        case _:
            assert_never(asked)


if __name__ == "__main__":
    sys.exit(main())

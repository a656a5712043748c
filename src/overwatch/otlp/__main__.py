"""Bodies as lines of OTLP/JSON, as a process of its own: requests and answers over the socket that is stdin.

A request is one byte, the place of its signal in `SIGNALS`, the body's length and the body; the answer is the
line's length and the line. Both lengths are 4 bytes, the lowest first. It ends when the socket does. Must not
know who asks.
"""

import contextlib
import signal
import socket
import struct
import sys
from typing import BinaryIO, Final

from overwatch.background import give_way
from overwatch.journal import Signal
from overwatch.otlp.jsonl import to_json

REQUEST: Final = struct.Struct("<BI")
ANSWER: Final = struct.Struct("<I")
SIGNALS: Final = (Signal.LOGS, Signal.METRICS, Signal.TRACES)


def main() -> int:
    """Answer until nobody asks any more."""
    give_way()
    # A ctrl-c at a terminal is for who asks: it finishes what it has begun.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=sys.stdin.fileno()) as asker, asker.makefile("rb") as requests:
        _answer_all(asker, requests)
    return 0


def _answer_all(asker: socket.socket, requests: BinaryIO) -> None:
    # Who asks may be killed at any moment: then nobody waits for the line.
    with contextlib.suppress(ConnectionError):
        while len(head := requests.read(REQUEST.size)) == REQUEST.size:
            place, length = REQUEST.unpack(head)
            body = requests.read(length)
            if len(body) < length:
                break
            line = to_json(SIGNALS[place], body)
            asker.sendall(ANSWER.pack(len(line)) + line)


if __name__ == "__main__":
    sys.exit(main())

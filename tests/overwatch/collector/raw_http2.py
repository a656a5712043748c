"""HTTP/2 by hand, for calls that no polite client makes."""

import socket
import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
"""Kinds of frames."""
END_STREAM, END_HEADERS = 1, 4
"""Their flags."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def kinds(received: bytes) -> list[int]:
    """The kinds of the whole frames that were received."""
    found, at = [], 0
    while at + 9 <= len(received) and (end := at + 9 + int.from_bytes(received[at : at + 3])) <= len(
        received
    ):
        found.append(received[at + 3])
        at = end
    return found


def _literal(name: str, value: str) -> bytes:
    """A header that no table needs to know; name and value are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def _opening(authority: str, method: str) -> bytes:
    """The first words of a connection with one gRPC call, up to its message."""
    stated = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(_literal(name, value) for name, value in stated.items())
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block)


def begin_call(host: str, port: int, method: str) -> socket.socket:
    """A connection with one gRPC call whose message never comes."""
    opened = socket.create_connection((host, port), timeout=10)
    opened.sendall(_opening(f"{host}:{port}", method))
    return opened


def whole_call(method: str, message: bytes) -> bytes:
    """All that a client sends for one call: a connection, its headers, its message."""
    framed = b"\x00" + struct.pack(">I", len(message)) + message
    return _opening("127.0.0.1", method) + frame(DATA, END_STREAM, 1, framed)

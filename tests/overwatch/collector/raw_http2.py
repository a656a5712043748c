"""HTTP/2 by hand, for calls that no polite client makes: begun, and never ended."""

import socket
import struct
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _END_HEADERS = 1, 4, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header that no table needs to know; name and value are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def begin_call(host: str, port: int, method: str) -> socket.socket:
    """A connection with one gRPC call whose message never comes."""
    said = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": f"{host}:{port}",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(_literal(name, value) for name, value in said.items())
    opened = socket.create_connection((host, port), timeout=10)
    opened.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, 1, block))
    return opened

"""When certificates in PEM end: the one field of X.509 that the standard library shows of no own certificate.

Rules: what cannot be read has no end; whether it can be used is not decided here. Pure. Must not know files.
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LONG: Final = 0x80
_VALIDITY: Final = 3
"""Its place in a certificate after the version: serial number, algorithm, issuer, validity."""


def first_end(pem: str) -> float | None:
    """When the first of the certificates ends, in Unix time; `None` where no end can be read."""
    ends = []
    for found in _PEM.findall(pem):
        try:
            ends.append(_end(ssl.PEM_cert_to_DER_cert(found)))
        except (ValueError, IndexError):
            continue
    return min(ends, default=None)


def _end(certificate: bytes) -> float:
    """Raises `ValueError` or `IndexError` for what is no certificate."""
    ((_, whole),) = _fields(certificate)
    (_, signed), *_ = _fields(whole)
    fields = [field for field in _fields(signed) if field[0] != _VERSION]
    tag, validity = fields[_VALIDITY]
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, (kind, text) = _fields(validity)
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(kind)
    if form is None:
        raise ValueError("no time")
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents that follow each other in DER."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= _LONG:
            count = length - _LONG
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + length]
        at += length

"""Certificates of the collector's doors: TLS 1.2 and above, with a client's certificate where one is asked.

Rules: files are read again on SIGHUP and when they change; new connections get the new ones, open connections
go on; files that cannot be used leave the old ones in place. When a certificate ends is read here, as the
standard library shows it of no certificate of one's own. Must not know what is served.
"""

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from overwatch.collector.setting_types import bounded
from overwatch.regular import read_regular

NAME: Final = "tls"

_PROTOCOLS: Final = ("http/1.1",)
"""What a web listener speaks, as TLS agrees on it."""

_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LONG: Final = 0x80
_VALIDITY: Final = 3
"""Its place in a certificate after the version: serial number, algorithm, issuer, validity."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls` of a listener, with otelcol's keys."""

    cert_file: Path
    """PEM: the server's certificate, then those between it and its authority."""
    key_file: Path
    """PEM: its private key, without a password."""
    client_ca_file: Path | None = None
    """PEM: authorities of clients; clients must then show a certificate of theirs."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Least TLS version, `1.2` or `1.3`."""
    reload_interval_s: float = 10.0
    """Least seconds between two looks whether the files changed; new connections cause one too."""

    def __post_init__(self) -> None:
        bounded(self, "reload_interval_s", least=0)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it names."""
        return (self.cert_file, self.key_file, *((self.client_ca_file,) if self.client_ca_file else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """What the files of one section hold, for servers with a TLS of their own."""

    key: bytes
    chain: bytes
    authorities: bytes | None


class Certificates:
    """What one `tls` section stands for at the moment; safe from any thread."""

    def __init__(self, config: TlsConfig, report: Callable[[str | None], None]) -> None:
        """`report` gets why files cannot be used, and `None` once they can."""
        self.config = config
        """Its section."""
        self._report = report
        self._lock = threading.Lock()
        self._listening: ssl.SSLContext | None = None
        self._now: ssl.SSLContext | None = None
        self.pem = Pem(key=b"", chain=b"", authorities=None)
        """Another object whenever the files were read anew."""
        self._seen: tuple[tuple[int, ...], ...] = ()
        self._looked = 0.0
        self.ends: float | None = None
        """When the first certificate of those that are shown ends, in Unix time."""

    def load(self) -> None:
        """Read the files; raises `OSError` or `ValueError` naming them, and then those of before hold on."""
        with self._lock:
            self._load()

    def reload(self) -> None:
        """Read the files again, the border to the disk: what is wrong is reported."""
        with self._lock:
            self._try()

    def context(self) -> ssl.SSLContext:
        """For a web server's sockets; each handshake takes the certificates of its moment."""
        if self._listening is None:
            self._listening = self._make()

            def take(handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext) -> None:
                self.look()
                if self._now is not None:
                    handshake.context = self._now

            self._listening.sni_callback = take
        return self._listening

    def look(self) -> None:
        """Take up files that changed, if it is time to look at them."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked < self.config.reload_interval_s:
                return
            self._looked = now
            if self._signature() != self._seen:
                self._try()

    def _try(self) -> None:
        try:
            self._load()
        except (OSError, ValueError) as error:
            self._seen = ()  # Looked at again until they can be used.
            self._report(f"the certificates of before are kept: {error}")
        else:
            self._report(None)

    def _load(self) -> None:
        seen = self._signature()
        self._now = self._make()
        self.pem = self._read()
        self.ends = first_end(self.pem.chain.decode("utf-8", "replace"))
        self._seen, self._looked = seen, time.monotonic()

    def _read(self) -> Pem:
        config = self.config
        return Pem(
            key=read_regular(config.key_file),
            chain=read_regular(config.cert_file),
            authorities=None if config.client_ca_file is None else read_regular(config.client_ca_file),
        )

    def _make(self) -> ssl.SSLContext:
        config = self.config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[config.min_version]
        context.set_alpn_protocols(_PROTOCOLS)
        # A resumed session would outlive the authority that vouched for its client.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            # OpenSSL opens them by their names, and waits for what is no regular file.
            for file in config.files:
                read_regular(file)
            # An empty password: a key that has one must fail here, not ask at the terminal.
            context.load_cert_chain(config.cert_file, config.key_file, password="")
            if config.client_ca_file is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(config.client_ca_file)
        except ssl.SSLError as error:
            names = ", ".join(str(file) for file in config.files)
            raise ValueError(
                f"{names}: {error.reason or error}; write PEM files that belong together"
            ) from error
        except OSError as error:
            raise ValueError(f"cannot read {error.filename or config.cert_file}: {error.strerror}") from error
        return context

    def _signature(self) -> tuple[tuple[int, ...], ...]:
        """What changes when a file does; a file that is gone has none."""
        found: list[tuple[int, ...]] = []
        for file in self.config.files:
            try:
                state = file.stat()
            except OSError:
                found.append(())
            else:
                found.append((state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size))
        return tuple(found)


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

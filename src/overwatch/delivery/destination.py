"""Where requests of one signal go, and all that `OTEL_EXPORTER_OTLP_*` says about the way.

Rules: a signal's own variable wins over the shared one; a value that cannot be used is told and left out;
the value of a header is never told. Must not know requests.
"""

import base64
import logging
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec

from overwatch import discovery
from overwatch.delivery.endpoint import Protocol, Target
from overwatch.delivery.proxy import Proxy, proxy
from overwatch.journal import Signal

log: Final = logging.getLogger("overwatch.exporter")

DEFAULT_TIMEOUT_S: Final = 10.0
LONGEST_TIMEOUT_S: Final = 60.0
_SURELY_MILLISECONDS: Final = 1000.0
"""The specification counts milliseconds, OpenTelemetry's Python counts seconds, and so do we. Nobody waits a
thousand seconds for a collector: such a number follows the specification."""
TOKEN_FILE: Final = "OVERWATCH_INGEST_TOKEN_FILE"  # noqa: S105 a name, not a token
"""Environment variable: a file with the bearer token to send with, where no header names one."""
_MOST_BYTES: Final = 1 << 16
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_KEPT_IN_PATH: Final = "/?%:@!$&'()*+,;=~"
_OURS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding"}
)


class Headers(msgspec.Struct, frozen=True):
    """Names in lower case and values; secrets, so they do not show in a representation."""

    pairs: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Headers({', '.join(name for name, _ in self.pairs)})"


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files; they are read at each new connection, so a renewed certificate is taken up."""

    authorities: str | None = None
    """Who is trusted; `None` is the system's list."""
    key: str | None = None
    certificate: str | None = None
    """What we show of ourselves, with `key`."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Least TLS version over HTTP; gRPC has its own least, 1.2."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A server; what has one origin may share a connection."""

    host: str
    port: int
    tls: Tls | None
    """`None` is plain text."""
    via: Proxy | None = None

    @property
    def authority(self) -> str:
        """`host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Where the requests of one signal go."""

    protocol: Protocol
    origin: Origin
    path: str
    """Path and query for HTTP; unused with gRPC."""
    headers: Headers = Headers()
    timeout_s: float = DEFAULT_TIMEOUT_S
    """The longest that one try may take, in all."""
    gzip: bool = False
    token_file: Path | None = None
    """A file with a bearer token, read at each request: it may be replaced at any time."""
    announced: Path | None = None
    """Where a collector of this machine is announced with its token; `None` is the usual place."""

    @property
    def headers_now(self) -> tuple[tuple[str, str], ...]:
        """Headers of a request that is sent now.

        Without a header `authorization`, the token of the file, else of the collector that is announced
        at this address: it may have been started, or got another token, since the trainer began.
        """
        if any(name == "authorization" for name, _ in self.headers.pairs):
            return self.headers.pairs
        if self.token_file is not None:
            token = _first_token(self.token_file)
        else:
            token = discovery.token(self.shown, "ingest", self.announced)
        return (
            self.headers.pairs
            if token is None
            else (*self.headers.pairs, ("authorization", f"Bearer {token}"))
        )

    @property
    def shown(self) -> str:
        """For a message to a person; without user, password, path and query."""
        return f"{'http' if self.origin.tls is None else 'https'}://{self.origin.authority}"


def header_problem(name: str, value: str) -> str | None:
    """Why a header cannot be sent with a request; `None` where it can. The value is in no message."""
    if not _NAME.fullmatch(name.lower()):
        return "is no name of a header; write letters, digits and hyphens"
    if name.lower() in _OURS:
        return "is set by the exporter itself; leave it out"
    if not (value.isascii() and value.isprintable()):
        return "has a value that no header can carry; write printable ASCII characters"
    return None


def _first_token(file: Path) -> str | None:
    """The first line that is not blank; `None` for a file of which nothing can be sent at this moment."""
    try:
        with file.open("rb") as opened:
            lines = opened.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    token = next((line.strip() for line in lines if line.strip()), None)
    return token if token is not None and header_problem("authorization", token) is None else None


def destination(signal: Signal, target: Target, env: Mapping[str, str] = os.environ) -> Destination:
    """The destination of a signal; raises `ValueError` when the endpoint is no URL of a server."""
    words = _Words(signal, env)
    url = target.endpoint or _from_env(signal, target.protocol, words)
    with_scheme = url if "://" in url else f"{_scheme(target.protocol, words)}://{url}"
    parts = urlsplit(with_scheme)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the endpoint of {signal.value} is no http:// or https:// URL of a server")
    tls = parts.scheme == "https"
    host, port = _ascii(parts.hostname), parts.port or (443 if tls else 80)
    via = None if target.protocol == "grpc" else proxy(parts.scheme, host, port, env)
    headers = _headers(words)
    if parts.username and "authorization" not in dict(headers):
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = (*headers, ("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    return Destination(
        protocol=target.protocol,
        origin=Origin(host=host, port=port, tls=_tls(words) if tls else None, via=via),
        path=quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_KEPT_IN_PATH),
        headers=Headers(headers),
        timeout_s=_timeout_s(words),
        gzip=_gzip(words),
        token_file=Path(env[TOKEN_FILE]) if env.get(TOKEN_FILE) else None,
        announced=None if env is os.environ else discovery.path(env),
    )


class _Words:
    """The environment as one signal sees it."""

    def __init__(self, signal: Signal, env: Mapping[str, str]) -> None:
        self._signal = signal.name
        self._env = env

    def get(self, what: str) -> str:
        """The signal's own word, else the shared one; empty is unset."""
        return self.own(what) or self._env.get(f"OTEL_EXPORTER_OTLP_{what}", "").strip()

    def own(self, what: str) -> str:
        return self._env.get(f"OTEL_EXPORTER_OTLP_{self._signal}_{what}", "").strip()


def _from_env(signal: Signal, protocol: Protocol, words: _Words) -> str:
    own = words.own("ENDPOINT")
    if own or protocol == "grpc":
        return own or words.get("ENDPOINT")
    return f"{words.get('ENDPOINT').rstrip('/')}/v1/{signal.value}"


def _scheme(protocol: Protocol, words: _Words) -> str:
    """Of an endpoint that names none: gRPC is TLS unless said otherwise."""
    plain = protocol != "grpc" or words.get("INSECURE").lower() == "true"
    return "http" if plain else "https"


def _ascii(host: str) -> str:
    """A host as it stands in a header and a look-up; raises `UnicodeError`, a `ValueError`, for no host."""
    return host if ":" in host else host.encode("idna").decode()


def _tls(words: _Words) -> Tls:
    return Tls(
        authorities=words.get("CERTIFICATE") or None,
        key=words.get("CLIENT_KEY") or None,
        certificate=words.get("CLIENT_CERTIFICATE") or None,
    )


def _headers(words: _Words) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for position, entry in enumerate(words.get("HEADERS").split(","), start=1):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        name, value = unquote(name).strip().lower(), unquote(value).strip()
        problem = header_problem(name, value) if equals else "is not name=value"
        if problem is None:
            found[name] = value
        else:
            log.warning("header %d of OTEL_EXPORTER_OTLP_HEADERS %s; it is left out", position, problem)
    return tuple(found.items())


def _timeout_s(words: _Words) -> float:
    word = words.get("TIMEOUT")
    try:
        asked = float(word or DEFAULT_TIMEOUT_S)
    except ValueError:
        asked = math.nan
    if not asked > 0:
        log.warning("OTLP timeout %r is no positive number of seconds; %g s is used", word, DEFAULT_TIMEOUT_S)
        return DEFAULT_TIMEOUT_S
    if asked >= _SURELY_MILLISECONDS:
        asked /= 1000
    return min(asked, LONGEST_TIMEOUT_S)


def _gzip(words: _Words) -> bool:
    word = words.get("COMPRESSION").lower()
    if word not in ("", "none", "gzip"):
        log.warning("OTLP compression %r is not supported; sending without", word)
    return word == "gzip"

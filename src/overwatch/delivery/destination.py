"""Where requests of one signal go, and all that the environment sets of the way.

Rules: what the trainer asked for wins, then `OTEL_EXPORTER_OTLP_*`, a signal's own variable over the shared
one, then the collector found on this machine, then the default of OTLP. A value that cannot be used is logged
and left out; the value of a header is never logged. `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`
are read as curl reads them, in lower or upper case; this machine is always reached directly; gRPC reads these
variables itself. Must not know requests or connections.
"""

import base64
import ipaddress
import logging
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import msgspec

from overwatch import discovery
from overwatch.journal import Signal
from overwatch.regular import read_regular

log: Final = logging.getLogger("overwatch.exporter")

Protocol = Literal["grpc", "http/protobuf"]

DEFAULT_HTTP: Final = "http://127.0.0.1:4318"
DEFAULT_GRPC: Final = "http://127.0.0.1:4317"
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


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy that is spoken to in plain HTTP."""

    host: str
    port: int
    authorization: str | None = None
    """A secret, so it does not show in a representation."""

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


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
            token = first_token(self.token_file)
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


def first_token(file: Path) -> str | None:
    """The first line that is not blank; `None` for a file of which nothing can be sent at this moment."""
    try:
        lines = read_regular(file, _MOST_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    token = next((line.strip() for line in lines if line.strip()), None)
    return token if token is not None and header_problem("authorization", token) is None else None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where one signal goes, and over which protocol."""

    protocol: Protocol
    endpoint: str | None
    """Full URL for HTTP, the server's for gRPC; `None` leaves it to the environment."""
    shown: str
    """For a message to a person."""


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


def target(signal: Signal, requested: str | None, env: Mapping[str, str] = os.environ) -> Target:
    """The target of a signal; `requested` is what the trainer named."""
    words = _Words(signal, env)
    protocol = _protocol(words, requested)
    is_grpc = protocol == "grpc"
    base = requested
    if base is None and (named := words.get("ENDPOINT")):
        return Target(protocol=protocol, endpoint=None, shown=named)
    if base is None and (found := discovery.read(discovery.path(env))) is not None:
        base = found.otlp_grpc if is_grpc else found.otlp_http
    if base is None:
        base = DEFAULT_GRPC if is_grpc else DEFAULT_HTTP
    url = base if is_grpc else f"{base.rstrip('/')}/v1/{signal.value}"
    return Target(protocol=protocol, endpoint=url, shown=base)


def _protocol(words: _Words, requested: str | None) -> Protocol:
    word = words.get("PROTOCOL").lower()
    if word == "grpc":
        return "grpc"
    if word not in ("", "http/protobuf"):
        log.warning("OTLP protocol %r is not supported; sending http/protobuf", word)
    if not word and requested is not None and requested.rstrip("/").endswith(":4317"):
        return "grpc"
    return "http/protobuf"


def destination(signal: Signal, requested: str | None, env: Mapping[str, str] = os.environ) -> Destination:
    """The destination of a signal; `requested` is what the trainer named.

    Raises `ValueError` when the endpoint is no URL of a server.
    """
    to, words = target(signal, requested, env), _Words(signal, env)
    url = to.endpoint or _from_env(signal, to.protocol, words)
    if "://" not in url:
        # Of an endpoint without a scheme: gRPC is TLS unless the environment has it otherwise.
        is_plain = to.protocol != "grpc" or words.get("INSECURE").lower() == "true"
        url = f"{'http' if is_plain else 'https'}://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the endpoint of {signal.value} is no http:// or https:// URL of a server")
    headers = _headers(words)
    if parts.username and "authorization" not in dict(headers):
        headers = (*headers, ("authorization", _basic(parts)))
    tls = Tls(
        authorities=words.get("CERTIFICATE") or None,
        key=words.get("CLIENT_KEY") or None,
        certificate=words.get("CLIENT_CERTIFICATE") or None,
    )
    return Destination(
        protocol=to.protocol,
        origin=origin_of(parts, tls, {} if to.protocol == "grpc" else env),
        path=quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_KEPT_IN_PATH),
        headers=Headers(headers),
        timeout_s=_timeout_s(words),
        gzip=_gzip(words),
        token_file=Path(env[TOKEN_FILE]) if env.get(TOKEN_FILE) else None,
        announced=None if env is os.environ else discovery.path(env),
    )


def origin_of(parts: SplitResult, tls: Tls, env: Mapping[str, str]) -> Origin:
    """The server of a URL, where it is https with `tls`; `env` may name a proxy."""
    is_secure = parts.scheme == "https"
    host, port = _ascii(parts.hostname or ""), parts.port or (443 if is_secure else 80)
    via = proxy(parts.scheme, host, port, env)
    return Origin(host=host, port=port, tls=tls if is_secure else None, via=via)


def _from_env(signal: Signal, protocol: Protocol, words: _Words) -> str:
    own = words.own("ENDPOINT")
    if own or protocol == "grpc":
        return own or words.get("ENDPOINT")
    return f"{words.get('ENDPOINT').rstrip('/')}/v1/{signal.value}"


def _ascii(host: str) -> str:
    """A host as it stands in a header and a look-up; raises `UnicodeError`, a `ValueError`, for no host."""
    return host if ":" in host else host.encode("idna").decode()


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
        requested = float(word or DEFAULT_TIMEOUT_S)
    except ValueError:
        requested = math.nan
    if not requested > 0:
        log.warning("OTLP timeout %r is no positive number of seconds; %g s is used", word, DEFAULT_TIMEOUT_S)
        return DEFAULT_TIMEOUT_S
    if requested >= _SURELY_MILLISECONDS:
        requested /= 1000
    return min(requested, LONGEST_TIMEOUT_S)


def _gzip(words: _Words) -> bool:
    word = words.get("COMPRESSION").lower()
    if word not in ("", "none", "gzip"):
        log.warning("OTLP compression %r is not supported; sending without", word)
    return word == "gzip"


def proxy(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to a server; `None` is the direct way."""
    named = _word(env, f"{scheme}_proxy") or _word(env, "all_proxy")
    spared = _word(env, "no_proxy")
    if not named or is_here(host) or proxy_bypass_environment(f"{host}:{port}", {"no": spared}):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    try:
        at = parts.port or 80
    except ValueError:
        at = 0
    if parts.scheme != "http" or not parts.hostname or not at:
        log.warning("the proxy for %s is no http:// URL of a server; going without", scheme)
        return None
    return Proxy(host=parts.hostname, port=at, authorization=_basic(parts) if parts.username else None)


def _basic(parts: SplitResult) -> str:
    """The user and password of a URL as a header."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def is_here(host: str) -> bool:
    """Whether a host is this machine by its very name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _word(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()

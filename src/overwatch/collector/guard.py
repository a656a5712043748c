"""Who may come in at the collector's doors: TLS, the host that was asked for, the page that asks, the token.

Rules: no HTTP door is made without a guard in front of all its routes; everything is judged before a byte
of the body is read; a page of another origin, or a name that was rebound to this machine, is refused whatever
token it has. A cookie counts where no header has a token; as a browser sends it whatever page asks, to act
with it takes the `Origin` of the collector's own page. Must not know what is served behind the doors.
"""

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from aiohttp import hdrs, web

from overwatch import discovery
from overwatch.collector.auth import Denial, Role, Throttle, Tokens, TokensConfig
from overwatch.collector.connections import ConnectionsConfig
from overwatch.collector.health import Health
from overwatch.collector.net import Address
from overwatch.collector.tally import Tally
from overwatch.collector.tls import NAME as TLS
from overwatch.collector.tls import Certificates, TlsConfig

NAME: Final = "tokens"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

LONGEST_RELOAD_S: Final = 3600.0
"""The longest that a revoked token may be accepted, in seconds."""

_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_SHOWN: Final = 100
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("overwatch.collector")


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`service.security`."""

    allow_insecure_bind: bool = False
    """Whether addresses that other machines can reach may be served without token and TLS."""
    tokens: TokensConfig = TokensConfig()
    """Bearer tokens by role."""
    tls: TlsConfig | None = None
    """TLS of all listeners but health; a listener's own `tls` wins."""
    reload_interval_s: float = 10.0
    """A token file that changes holds within so many seconds."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may call the collector beside its addresses; `*.example.org` takes all below."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may ask, e.g. `https://board.example.org`; the collector's own always may."""

    def __post_init__(self) -> None:
        if not 0 < self.reload_interval_s <= LONGEST_RELOAD_S:
            raise ValueError(
                f"reload_interval_s {self.reload_interval_s} must be above 0 and at most {LONGEST_RELOAD_S:g}"
            )
        for origin in self.allowed_origins:
            scheme, found, rest = origin.partition("://")
            if scheme not in ("http", "https") or not found or not rest or "/" in rest or "*" in rest:
                raise ValueError(f"allowed_origins: {origin!r} is not like https://board.example.org")
        for host in self.allowed_hosts:
            if not host or any(sign in host for sign in "/: @") or "*" in host.removeprefix("*."):
                raise ValueError(
                    f"allowed_hosts: {host!r} is not like collector.example.org or *.example.org"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A request that may not come in."""

    status: int
    """401, 403, or 429."""
    message: str
    header: str
    """The header that decided."""
    wait_s: float = 0.0
    """How long this peer has to wait, with status 429."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address, by the path of its key below the section that has it, or in the whole file."""

    path: str
    endpoint: str
    tls: TlsConfig | None
    role: Role | None
    """Whose token it asks for; `None` asks for none."""
    shares_tls: bool = True
    """Whether it takes the TLS of `service.security` where it has none of its own."""
    takes_min_version: bool = True
    """Whether its server can refuse TLS 1.2."""


Answer = Callable[[web.Request, Refused], web.Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kind of door."""

    name: str
    reads: Role | None
    """The role that safe methods need; `None` needs no token."""
    acts: Role | None
    """The role that all other methods need."""
    answer: Answer
    """Writes a refusal in the listener's own protocol."""
    free: frozenset[str] = frozenset()
    """Routes that need no token, as they were added; hosts and origins are judged there too."""
    scheme: str = "http"
    """Of its URL, without TLS."""
    bodies: bool = False
    """Whether requests have bodies; who waits for `100 Continue` then gets it once he is let in."""
    connections: ConnectionsConfig | None = None
    """How many connections there may be, and how long each; the defaults if left out."""


class Guard:
    """Judges what comes; `load` before any door opens, safe from any thread."""

    def __init__(self, config: SecurityConfig, health: Health, tally: Tally) -> None:
        self._config = config
        self._health = health
        self._tally = tally
        self._certificates: dict[TlsConfig, Certificates] = {}
        self._unusable: dict[TlsConfig, str] = {}
        self._reporting = threading.Lock()
        self._rotating = threading.Lock()
        self._on_change: list[Callable[[], None]] = []
        self.tokens = Tokens(config.tokens)
        """The tokens that hold now."""
        self.throttle = Throttle(time.monotonic)
        """Of wrong tokens in headers, at all doors."""

    def load(self) -> None:
        """Read the tokens; raises `OSError` or `ValueError`."""
        self.tokens.load()

    def on_change(self, react: Callable[[], None]) -> None:
        """Call `react` after each change of the tokens, on the thread that found it."""
        self._on_change.append(react)

    def reload(self) -> tuple[str, ...]:
        """Read tokens and certificates again, the border to their files: what is wrong, as in health."""
        wrong = self._rotate(at_once=True)
        for certificates in self._certificates.values():
            certificates.reload()
        with self._reporting:
            return (*wrong, *self._unusable.values())

    def look(self) -> None:
        """Take up tokens and certificates that changed; what is wrong stands in health. Raises nothing."""
        try:
            self._rotate(at_once=False)
            for certificates in self._certificates.values():
                certificates.look()
        except Exception:  # noqa: BLE001 the border: without a next look a revoked token would hold for ever
            _log.exception("token files and certificates could not be looked at")

    def _rotate(self, *, at_once: bool) -> tuple[str, ...]:
        with self._rotating:
            before = self.tokens.changes
            wrong = self.tokens.reload(at_once=at_once)
            kept = f"the tokens of before are kept: {'; '.join(wrong)}" if wrong else None
            self._health.report(NAME, kept)
            if self.tokens.changes != before:
                _log.info("the tokens changed")
                for react in self._on_change:
                    react()
        return tuple(f"the tokens of before are kept: {error}" for error in wrong)

    @property
    def announced(self) -> discovery.Tokens:
        """A token of each role, for this user's own programs on this machine."""
        found = {role.value: self.tokens.first(role) for role in Role}
        return discovery.Tokens(**{name: one.reveal() for name, one in found.items() if one is not None})

    def certificates(self, own: TlsConfig | None, *, shared: bool = True) -> Certificates | None:
        """Those of a listener, `None` for plain text; raises `OSError` or `ValueError`."""
        config = own or (self._config.tls if shared else None)
        if config is None:
            return None
        if config not in self._certificates:
            made = Certificates(config, partial(self._reported, config))
            made.load()
            self._certificates[config] = made
        return self._certificates[config]

    def _reported(self, config: TlsConfig, error: str | None) -> None:
        """What one section's certificates report; health has one condition for those of all."""
        with self._reporting:
            self._unusable.pop(config, None)
            if error is not None:
                self._unusable[config] = error
            self._health.report(TLS, "; ".join(self._unusable.values()) or None)

    @property
    def certificate_ends(self) -> dict[str, float]:
        """When certificates that are shown end, in Unix time, by their file."""
        held = [(str(config.cert_file), made.ends) for config, made in self._certificates.items()]
        return {file: ends for file, ends in held if ends is not None}

    def protect(self, app: web.Application, entry: Entry, bound: Address) -> web.Application:
        """Stand before all routes of an application, those that do not exist among them."""

        @web.middleware
        async def stand(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._host(request, bound) or self._origin(request) or self._token(request, entry)
            if refused is None:
                if entry.bodies and request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return await handler(request)
            return self._refuse(request, entry, refused)

        app.middlewares.insert(0, stand)
        return app

    def may(self, role: Role, request: web.Request) -> bool:
        """Whether a request has a role, for doors that show more to some."""
        return self._denial(role, request) is None

    def wrong(self, denial: Denial, peer: str, tokens: Sequence[str]) -> float:
        """Count a token that is none of this collector's; how long its peer has to wait, 0 if not at all."""
        return self.throttle.guess(peer, tokens) if denial is Denial.UNAUTHENTICATED else 0.0

    def count(self, listener: str, reason: str) -> None:
        """Count one refusal."""
        self._tally.add("overwatch_listener_refused_requests", 1, listener=listener, reason=reason)

    def _refuse(self, request: web.Request, entry: Entry, refused: Refused) -> web.Response:
        self.count(entry.name, refused.header.lower())
        answer = entry.answer(request, refused)
        if refused.status == web.HTTPUnauthorized.status_code:
            answer.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="overwatch"'
        if refused.wait_s:
            answer.headers[hdrs.RETRY_AFTER] = str(int(refused.wait_s) + 1)
        # What is left of the body is not worth reading for the sake of the connection.
        answer.force_close()
        return answer

    def _host(self, request: web.Request, bound: Address) -> Refused | None:
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) == 1 and host_allowed(hosts[0], bound, self._config.allowed_hosts):
            return None
        stated = ", ".join(hosts)[:_SHOWN]
        fix = "use its address, or add the name to service.security.allowed_hosts"
        return Refused(
            status=403, message=f"host {stated!r} is no name of this collector; {fix}", header="Host"
        )

    def _origin(self, request: web.Request) -> Refused | None:
        origins = request.headers.getall(hdrs.ORIGIN, [])
        if not origins or _is_own(request) or (len(origins) == 1 and self._is_allowed(origins[0])):
            return None
        stated = ", ".join(origins)[:_SHOWN]
        return Refused(
            status=403,
            message=f"origin {stated!r} may not use this collector; see service.security.allowed_origins",
            header="Origin",
        )

    def _is_allowed(self, origin: str) -> bool:
        return origin in self._config.allowed_origins

    def _token(self, request: web.Request, entry: Entry) -> Refused | None:
        role = entry.reads if request.method in SAFE else entry.acts
        resource = request.match_info.route.resource
        if role is None or (resource is not None and resource.canonical in entry.free):
            return None
        denial = self._denial(role, request)
        if denial is not None:
            tokens = request.headers.getall(hdrs.AUTHORIZATION, [])
            wait_s = self.wrong(denial, request.remote or "", tokens)
            status = 429 if wait_s else 401 if denial is Denial.UNAUTHENTICATED else 403
            message = stated(denial, role, wait_s)
            return Refused(status=status, message=message, header="Authorization", wait_s=wait_s)
        if request.method in SAFE or _is_own(request) or self._by_header(role, request) is None:
            return None
        message = "only this collector's own page may act by a cookie; send the token as a header"
        return Refused(status=403, message=message, header="Origin")

    def _denial(self, role: Role, request: web.Request) -> Denial | None:
        denial, kept = self._by_header(role, request), request.cookies.get(cookie_of(request))
        if denial is None or kept is None or hdrs.AUTHORIZATION in request.headers:
            return denial
        return self.tokens.judge_kept(role, kept)

    def _by_header(self, role: Role, request: web.Request) -> Denial | None:
        return self.tokens.judge(role, request.headers.getall(hdrs.AUTHORIZATION, []))


def cookie_of(request: web.Request) -> str:
    """The name of the cookie for this address, as a browser has the same ones for all ports of a host."""
    port = request.headers.get(hdrs.HOST, "").rpartition(":")[2]
    return f"overwatch-{port}" if port.isdigit() else "overwatch"


def _is_own(request: web.Request) -> bool:
    """Whether the page that asks is this collector's own."""
    origins = request.headers.getall(hdrs.ORIGIN, [])
    scheme, _, authority = origins[0].partition("://") if len(origins) == 1 else ("", "", "")
    return scheme in ("http", "https") and authority == request.headers[hdrs.HOST]


def stated(denial: Denial, role: Role, wait_s: float = 0.0) -> str:
    """The answer to a client that has not the right token."""
    if wait_s:
        again = f"too many wrong tokens came from there: wait {wait_s:.0f} s, or"
        return f"{again} {stated(denial, role)}"
    if denial is Denial.FORBIDDEN:
        return f"this token may not do that; use one of role {role.value!r}"
    return f"send `authorization: Bearer <token>` with a token of role {role.value!r}"


def host_allowed(host: str, bound: Address, allowed: tuple[str, ...]) -> bool:
    """Whether a `Host` header names a collector that listens at `bound`.

    An IP address cannot be rebound to another machine, so where all addresses are bound any will do.

    >>> here = Address(host="127.0.0.1", port=4380)
    >>> host_allowed("localhost:1", here, ()), host_allowed("evil.example", here, ())
    (True, False)
    """
    name = _hostname(host)
    if name is None:
        return False
    if any(_fits(name, pattern.lower()) for pattern in allowed):
        return True
    everywhere = bound.host in _WILDCARDS
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        near = bound.loopback or everywhere
        own = {bound.host.lower(), *(["localhost"] if near else [])}
        return name in (own if bound.loopback else own | {socket.gethostname().lower()})
    if everywhere:
        return True
    return address.is_loopback if bound.loopback else str(address) == bound.host.lower()


def _fits(name: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return name.endswith(pattern[1:]) and len(name) > len(pattern) - 1
    return name == pattern


def _hostname(host: str) -> str | None:
    """The name of a `Host` header without its port, `None` where it is no such header."""
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        port = port.removeprefix(":") if port.startswith(":") or not port else "x"
        return name.lower() if closed and _port(port) else None
    name, _, port = host.partition(":")
    return name.lower() if name and _port(port) else None


def _port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) <= 5)


async def expected(_: web.Request) -> None:
    """For the routes of an entry with bodies: `100 Continue` is sent by the guard, after its judgement."""


def plain(_: web.Request, refused: Refused) -> web.Response:
    """A refusal as text, for doors without a protocol of their own."""
    return web.Response(status=refused.status, text=f"{refused.message}\n")

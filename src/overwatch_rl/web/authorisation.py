"""Who may call: the address that is bound, the host that was called, the page that calls, the token.

Rules: an address that other machines can reach needs a token; without one only this machine is served, under
a name that is its own, so that a page whose name was rebound to it is refused; a page of another origin is
refused whatever token it has. Tokens are compared in constant time, each with all there are. Must not know
routes or bodies, nor what a caller may do.
"""

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from overwatch.regular import read_regular

_SHOWN = 60
_MOST_TOKEN_BYTES = 1 << 16
_MOST_PEERS = 1024
MOST_WRONG = 5
"""Wrong tokens that a peer may send at once."""
AGAIN_S = 10.0
"""So long after the last one it may send another."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a request is not served."""

    status: int
    """401 or 403."""
    message: str


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("trainer")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """The token of a file; raises `ValueError` where it is no regular file, or too large for one."""
    try:
        return read_regular(path, _MOST_TOKEN_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no file of a token: {error}") from error


class Throttle:
    """How many wrong tokens each peer may still send, of the last peers that did."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, tuple[float, set[bytes]]] = OrderedDict()
        """When all that a peer sent is forgotten, and digests of what it sent."""

    def wrong(self, peer: str, token: str) -> float:
        """Count a wrong token unless its peer has to wait; return how long that is.

        A program that repeats its one wrong token guesses nothing.
        """
        now, digest = self._clock(), hashlib.blake2b(token.encode(errors="replace"), digest_size=16).digest()
        until, known = self._peers.pop(peer, (now, set()))
        until, known = (until, known) if until > now else (now, set())
        wait_s = max(0.0, until - now - (MOST_WRONG - 1) * AGAIN_S)
        if token and digest not in known and not wait_s:
            until += AGAIN_S
            known.add(digest)
        self._peers[peer] = until, known
        if len(self._peers) > _MOST_PEERS:
            self._peers.popitem(last=False)
        return wait_s if digest not in known else 0.0


class Authorisation:
    """Judges the headers of requests."""

    def __init__(self, host: str, tokens: str | Mapping[str, str] | None, flag: str = "--token-file") -> None:
        """`host` is what is bound; `tokens` is the one there is, or one for each role; `flag` sets one.

        Raises `ValueError` where others could reach the address without a token, or a token is weak.
        """
        by_role = {"": tokens} if isinstance(tokens, str) else dict(tokens or {})
        if not by_role and not is_loopback(host):
            raise ValueError(
                f"host {host!r} can be reached from other machines; set a token with {flag}, "
                "or bind 127.0.0.1"
            )
        for role, token in by_role.items():
            if len(token) < 16 or not token.isascii() or not token.isprintable():
                named = f"the token of {role}" if role else "the token"
                raise ValueError(
                    f"{named} is too short or has odd characters; use 16 or more letters and digits"
                )
        if len(set(by_role.values())) < len(by_role):
            raise ValueError(f"two of {', '.join(by_role)} have the same token; use one for each")
        self._tokens = {role: token.encode() for role, token in by_role.items()}

    def denied(self, headers: Mapping[str, str]) -> Denied | None:
        """Why a request with these headers is refused; `None` where it may come in."""
        found = self.role(headers)
        return found if isinstance(found, Denied) else None

    def role(self, headers: Mapping[str, str]) -> str | Denied | None:
        """Whose token a request has, `None` where there are no tokens; or why it is refused."""
        host = headers.get("Host", "")
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != host:
            return Denied(403, f"pages of {origin[:_SHOWN]!r} may not call this server")
        if not self._tokens:
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if is_loopback(name.strip("[]")):
                return None
            return Denied(
                403, f"host {host[:_SHOWN]!r} is no name of this machine; call 127.0.0.1 or localhost"
            )
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        sent = given.strip().encode(errors="surrogateescape")
        owners = [role for role, token in self._tokens.items() if hmac.compare_digest(sent, token)]
        if scheme.lower() == "bearer" and owners:
            return owners[0]
        return Denied(401, "send `Authorization: Bearer <token>` with a token of this server")

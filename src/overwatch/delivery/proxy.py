"""The HTTP proxy between a training node and a collector, where the environment names one.

Rules: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` as curl reads them, in lower or upper case;
this machine is always reached directly. gRPC reads these variables itself. Must not know connections.
"""

import base64
import ipaddress
import logging
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import msgspec

log: Final = logging.getLogger("overwatch.exporter")


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy that is spoken to in plain HTTP."""

    host: str
    port: int
    authorization: str | None = None
    """A secret, so it does not show in a representation."""

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


def proxy(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to a server; `None` is the direct way."""
    said = _word(env, f"{scheme}_proxy") or _word(env, "all_proxy")
    spared = _word(env, "no_proxy")
    if not said or is_here(host) or proxy_bypass_environment(f"{host}:{port}", {"no": spared}):
        return None
    parts = urlsplit(said if "://" in said else f"http://{said}")
    try:
        at = parts.port or 80
    except ValueError:
        at = 0
    if parts.scheme != "http" or not parts.hostname or not at:
        log.warning("the proxy for %s is no http:// URL of a server; going without", scheme)
        return None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    secret = f"Basic {base64.b64encode(pair.encode()).decode()}" if parts.username else None
    return Proxy(host=parts.hostname, port=at, authorization=secret)


def is_here(host: str) -> bool:
    """Whether a host is this machine by its very name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _word(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()

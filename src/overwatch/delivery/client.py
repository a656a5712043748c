"""One request to a URL, over a connection of its own: what is no OTLP.

Rules: those of `connection`; the environment names a proxy, but for this machine. Must not know what a
request is for.
"""

import os
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from overwatch.delivery.connection import MAX_REPLY, Connection, Reply, Request
from overwatch.delivery.destination import Origin, Tls
from overwatch.delivery.proxy import proxy


def http_request(
    url: str,
    body: bytes | None = None,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    most: int = MAX_REPLY,
    env: Mapping[str, str] = os.environ,
) -> Reply:
    """The reply to a GET, or to a POST of `body`, within `timeout_s` in all and of `most` bytes.

    A redirect is a reply. `env` may name a proxy; `{}` is the direct way.

    Raises `OSError`, and `ValueError` for what is no URL of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http:// or https:// URL of a server")
    tls = Tls() if parts.scheme == "https" else None
    port = parts.port or (80 if tls is None else 443)
    via = proxy(parts.scheme, parts.hostname, port, env)
    connection = Connection(Origin(host=parts.hostname, port=port, tls=tls, via=via))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        asked = Request(
            method="GET" if body is None else "POST", path=path, headers=headers or {}, body=body or b""
        )
        return connection.exchange(asked, time.monotonic() + timeout_s, most)
    finally:
        connection.cut()
        connection.close()

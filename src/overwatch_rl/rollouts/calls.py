"""Calls to a server of the rollouts API: one connection, kept open, tried again until the server answers.

Owns transport: JSON both ways, gzip, the token, and which failures pass. A server that is away, busy or full
is asked again, at growing intervals, for as long as `patience_s`; an error of the caller, or a reply that
cannot be read, is raised at once.
Not for two threads at once. Must not know what is called.
"""

import gzip
import http.client
import json
import select
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from overwatch_rl.web.retrying import FIRST_WAIT_S, retrying

GZIP_FROM: Final = 1024
"""Bodies of so many bytes are compressed."""
PASSING: Final = frozenset({None, 429, 502, 503, 504})
"""Statuses that another try may change; `None` is no reply at all."""


class CallError(Exception):
    """The server rejected a call, or was not reached in time."""

    def __init__(
        self, message: str, status: int | None = None, body: Any = None, retry_s: float | None = None
    ) -> None:
        """`status` and `body` are those of the reply, where there was one."""
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_s = retry_s
        self.passes = status in PASSING


class StoppedError(Exception):
    """The caller stopped while a call was waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which server, and how patiently it is called."""

    url: str
    token: str | None = None
    ca: Path | None = None
    """PEM: the authorities of an https server, beside those of the system."""
    patience_s: float = 3_600.0
    """So long a call is tried again before it is given up."""
    timeout_s: float = 60.0
    """So long one try waits for its reply."""
    traceparent: Callable[[], str] | None = None
    """Gives the span that a call belongs to, as in `run.traceparent`."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to give up waiting at once."""
    retrying: Callable[[str, float], None] = lambda _why, _wait_s: None
    """Is given why a call is tried again, and in how many seconds."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {self.url!r}; write e.g. http://127.0.0.1:8000")


class Calls:
    """One connection to a server."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._line: http.client.HTTPConnection | None = None

    def get(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """The reply to a GET."""
        return self._call("GET", path, body, headers or {})

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """The reply to a POST."""
        return self._call("POST", path, body, headers or {})

    def close(self) -> None:
        """Give the connection up; the next call makes another."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _call(self, method: str, path: str, body: object, extra: Mapping[str, str]) -> Any:
        data, headers = self._encoded(body)
        headers |= extra
        for attempt in retrying(self._target.patience_s, self._passes):
            with attempt:
                status, reply, requested_s = self._once(method, path, data, headers)
                if status < 400:
                    return reply
                problem = reply.get("error", reply) if isinstance(reply, dict) else reply
                raise CallError(f"{method} {path}: {status}: {problem}", status, reply, requested_s)
        raise AssertionError

    def _passes(self, error: Exception) -> bool | float:
        """Whether another try may change an error, or after how many seconds; raise `StoppedError`."""
        if not isinstance(error, CallError) or not error.passes:
            return False
        self._target.retrying(str(error), error.retry_s or FIRST_WAIT_S)
        if self._target.stop.is_set():
            raise StoppedError(str(error)) from error
        return error.retry_s or True

    def _encoded(self, body: object) -> tuple[bytes | None, dict[str, str]]:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if self._target.token is not None:
            headers["Authorization"] = f"Bearer {self._target.token}"
        if self._target.traceparent is not None:
            headers["traceparent"] = self._target.traceparent()
        if body is None:
            return None, headers
        data = json.dumps(body, separators=(",", ":")).encode()
        headers["Content-Type"] = "application/json"
        if len(data) >= GZIP_FROM:
            data = gzip.compress(data, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return data, headers

    def _once(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Any, float | None]:
        """Status, decoded reply, and when the server asks to be called again."""
        try:
            line = self._open()
            line.request(method, path, data, dict(headers))
            response = line.getresponse()
            raw = response.read()
        except ssl.SSLCertVerificationError as failure:
            why = failure.verify_message
            message = f"{self._target.url}: {why}; name the authority of the server's certificate as ca"
            error = CallError(message)
            error.passes = False
            raise error from failure
        except (OSError, http.client.HTTPException) as failure:
            self.close()
            message = f"{method} {path}: no answer from {self._target.url}: {failure!r}"
            raise CallError(message) from failure
        after = response.headers.get("Retry-After")
        try:
            if response.headers.get("Content-Encoding") == "gzip":
                raw = gzip.decompress(raw)
            reply = json.loads(raw) if raw else None
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as failure:
            if response.status < 400:
                size = f"{len(raw)} bytes that cannot be read"
                message = f"{method} {path}: {self._target.url} answered {size}: {str(failure)[:200]}"
                raise CallError(message, response.status) from failure
            reply = raw[:200].decode(errors="replace")
        return response.status, reply, float(after) if after and after.isdigit() else None

    def _open(self) -> http.client.HTTPConnection:
        if self._line is not None and _is_closed(self._line):
            self.close()
        if self._line is None:
            parts = urlsplit(self._target.url)
            host, wait_s = parts.hostname or "", self._target.timeout_s
            if parts.scheme == "https":
                context = ssl.create_default_context()
                if self._target.ca is not None:
                    context.load_verify_locations(self._target.ca)
                self._line = http.client.HTTPSConnection(host, parts.port, timeout=wait_s, context=context)
            else:
                self._line = http.client.HTTPConnection(host, parts.port, timeout=wait_s)
        return self._line


def _is_closed(line: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a connection that was idle: there is something to read, its end."""
    if line.sock is None:
        return True
    ready = select.poll()
    ready.register(line.sock, select.POLLIN)
    return bool(ready.poll(0))

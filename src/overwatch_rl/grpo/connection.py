"""Requests to the rollouts server, one at a time over one connection.

Rules: a connection that broke is opened again and the request is sent once more with the same idempotency key;
a server that cannot be reached is waited for until `patience_s` has passed. Must not know what is asked.
"""

import http.client
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

T = TypeVar("T")

PATIENCE_S: Final = 60.0
_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.2


class RolloutsError(RuntimeError):
    """The server cannot be reached, or says that a request is wrong."""


class Connection:
    """One client of one server."""

    def __init__(self, url: str, *, token: str | None = None, patience_s: float = PATIENCE_S) -> None:
        """Raises `ValueError` for an address that is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"server {url!r} is no URL; write e.g. http://127.0.0.1:8000")
        made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._line = made(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        self._root = parts.path.rstrip("/")
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._patience_s = patience_s

    def get(self, path: str, kind: type[T], **headers: str) -> T:
        """The answer to a GET."""
        return msgspec.json.decode(self._answer("GET", path, None, headers)[1], type=kind)

    def post(self, path: str, body: object, kind: type[T]) -> T:
        """The answer to a POST. Raises `RolloutsError` where the server refuses it."""
        return msgspec.json.decode(self._answer("POST", path, body, {})[1], type=kind)

    def offer(self, path: str, body: object, wait: Callable[[float], bool]) -> bytes:
        """The answer to a POST of groups; while the server is full, `wait` is asked for so many seconds.

        Groups that are refused are named in the answer. Where `wait` answers true, nothing is sent any more
        and the answer is empty.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            status, said, after = self._request("POST", path, body, headers)
            if status in (200, 422):
                return said
            if status != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise RolloutsError(
                    f"{self._url}{path} answered {status}: {said[:500].decode(errors='replace')}"
                )
            if wait(float(after or 1.0)):
                return b""

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    def _answer(self, method: str, path: str, body: object, headers: dict[str, str]) -> tuple[int, bytes]:
        status, said, _ = self._request(method, path, body, headers)
        if status != http.HTTPStatus.OK:
            raise RolloutsError(f"{self._url}{path} answered {status}: {said[:500].decode(errors='replace')}")
        return status, said

    def _request(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> tuple[int, bytes, str | None]:
        content = None if body is None else msgspec.json.encode(body)
        own: dict[str, Any] = {**self._headers, **headers, "Content-Type": "application/json"}
        until = time.monotonic() + self._patience_s
        while True:
            try:
                self._line.request(method, self._root + path, content, own)
                reply = self._line.getresponse()
                return reply.status, reply.read(), reply.getheader("Retry-After")
            except (OSError, http.client.HTTPException) as error:
                self._line.close()
                if time.monotonic() >= until:
                    raise RolloutsError(
                        f"{self._url} cannot be reached: {error!r}; is the server running?"
                    ) from error
                time.sleep(_PAUSE_S)

"""A message as a POST to a webhook: JSON for programs, Slack's shape for people.

Rules: no redirect is followed, the reply is not read; the address and the headers are secrets and appear in
no message of ours. Must not know when a message is due.
"""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from overwatch.delivery.destination import header_problem
from overwatch.delivery.reply import retry_after_s
from overwatch.serve.notices import Notice, Shape

_BUSY: Final = frozenset({408, 425, 429})
"""Refusals that are of this moment only, beside all of 500 and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Where messages go."""

    url: str = field(repr=False)
    shape: Shape = "json"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_server = False
        if not is_server:
            raise ValueError("the webhook's url is no http:// or https:// URL of a server")
        if not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise ValueError("the webhook's url has a character that no URL has; write it as %XX")
        for name, value in self.headers.items():
            problem = header_problem(name, value)
            if problem:
                raise ValueError(f"headers.{name!r} {problem}")
        if not 0 < self.timeout_s <= 60:
            raise ValueError(f"a webhook answers within 60 s or is given up, not {self.timeout_s} s")

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Never: a message and its headers go where they were meant to go."""


class Webhook:
    """Carries messages to a hook."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        return self._hook.shown

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Post one message; see `Carrier`."""
        headers = {"content-type": "application/json", **self._hook.headers}
        body = notice.body(self._hook.shape)
        request = urllib.request.Request(self._hook.url, body, headers, method="POST")  # noqa: S310 checked
        try:
            with self._opener.open(request, timeout=self._hook.timeout_s):
                return "", None
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _BUSY and error.code < 500:
                    return f"HTTP {error.code}", None
                asked_s = retry_after_s(
                    error.headers.get("retry-after"), error.headers.get("date"), time.time()
                )
                return f"HTTP {error.code}", asked_s or 0.0
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, 0.0

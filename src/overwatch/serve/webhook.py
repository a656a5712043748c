"""A message as a POST to a webhook: JSON for programs, Slack's shape for people.

Rules: no redirect is followed, of the reply only its status counts; the address and the headers are secrets
and appear in no message of ours. Must not know when a message is due.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from overwatch.delivery.client import http_request
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


class Webhook:
    """Carries messages to a hook."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        return self._hook.shown

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Post one message; see `Carrier`."""
        headers = {
            "content-type": "application/json",
            **{n.lower(): v for n, v in self._hook.headers.items()},
        }
        body = notice.body(self._hook.shape)
        try:
            reply = http_request(self._hook.url, body, timeout_s=self._hook.timeout_s, headers=headers)
        except OSError as error:
            return type(error).__name__, 0.0
        if 200 <= reply.status < 300:
            return "", None
        if reply.status not in _BUSY and reply.status < 500:
            return f"HTTP {reply.status}", None
        return f"HTTP {reply.status}", retry_after_s(reply, time.time()) or 0.0

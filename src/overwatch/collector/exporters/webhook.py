"""The exporter `webhook`: a message as a POST, JSON for programs or Slack's shape for people.

Rules: no redirect is followed, of the reply only its status counts; the address and the headers are secrets
and appear in no message of ours. Must not know when a message is due.
"""

import time
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from overwatch.collector.exporters.notices import Notice, NotifierConfig, Shape, is_of_a_server
from overwatch.collector.setting_types import Secret
from overwatch.delivery.answer import retry_after_s
from overwatch.delivery.connection import http_request
from overwatch.delivery.destination import header_problem

_BUSY: Final = frozenset({408, 425, 429})
"""Refusals that are of this moment only, beside all of 500 and more."""


class WebhookConfig(NotifierConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.webhook`."""

    url: Secret | None = None
    """Where messages go, e.g. `${env:SLACK_WEBHOOK_URL}`; never shown."""
    shape: Shape = "json"
    """`json`, or `slack` for what Slack, Mattermost and others take."""
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Sent with each message; never shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.headers.items():
            problem = header_problem(name, value.reveal())
            if problem:
                raise ValueError(f"headers.{name!r} {problem}")
        if self.url is None:
            return
        url = self.url.reveal()
        if not is_of_a_server(url):
            raise ValueError("the webhook's url is no http:// or https:// URL of a server")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("the webhook's url has a character that no URL has; write it as %XX")

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be sent, and what to do; `None` where it is there."""
        if self.url is not None:
            return None
        return "url", "the webhook has no address; give one, e.g. ${env:WEBHOOK_URL}"

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = self._parts
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url.reveal() if self.url else "")

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Post one message."""
        own = {name.lower(): value.reveal() for name, value in self.headers.items()}
        headers = {"content-type": "application/json", **own}
        url, body = self.url.reveal() if self.url else "", notice.body(self.shape)
        try:
            reply = http_request(url, body, timeout_s=self.timeout_s, headers=headers)
        except OSError as error:
            return type(error).__name__, 0.0
        if 200 <= reply.status < 300:
            return "", None
        if reply.status not in _BUSY and reply.status < 500:
            return f"HTTP {reply.status}", None
        return f"HTTP {reply.status}", retry_after_s(reply, time.time()) or 0.0

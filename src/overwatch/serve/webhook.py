"""Findings to a webhook: JSON for programs, Slack's shape for people.

Rules: a message is tried a few times with growing pauses and then lost, counted; no redirect is followed,
the reply is not read; the address and the headers are secrets and appear in no message of ours. The
aggregator never waits for any of it. Must not know how findings are made.
"""

import http.client
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from overwatch.serve.notices import Notice, NoticeLimits, Notices, Shape

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

MOST_WAITING: Final = 1000
TRIES: Final = 4
_FIRST_PAUSE_S: Final = 0.5
_CLOSE_S: Final = 5.0

Report = Callable[[int, int, str | None], None]
"""Is told of messages delivered, lost, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Where messages go."""

    url: str = field(repr=False)
    shape: Shape = "json"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the webhook's url is no http:// or https:// URL of a server")
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
    """A frame sink that tells findings."""

    def __init__(self, hook: Hook, report: Report, limits: NoticeLimits | None = None) -> None:
        self._hook = hook
        self._report = report
        self._notices = Notices(limits)
        self._waiting: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._stopping = threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def publish(self, frame: "Frame") -> None:
        """Queue what is to be told of a frame; returns at once."""
        for notice in self._notices.of(frame):
            try:
                self._waiting.put_nowait(notice)
            except queue.Full:
                self._report(0, 1, f"{self._hook.shown}: too many messages wait")

    def close(self) -> None:
        """Send what waits, for a few seconds at most; a second call does nothing."""
        if self._stopping.is_set() or not self._thread.is_alive():
            return
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._deliver(notice)

    def _deliver(self, notice: Notice) -> None:
        body, trouble = notice.body(self._hook.shape), ""
        for attempt in range(TRIES):
            if attempt and self._stopping.wait(_FIRST_PAUSE_S * 2.0**attempt):
                break
            trouble, again = self._post(body)
            if not trouble:
                self._report(1, 0, None)
                return
            if not again:
                break
        self._report(0, 1, f"{self._hook.shown}: {trouble}")

    def _post(self, body: bytes) -> tuple[str, bool]:
        """What went wrong, empty when nothing did, and whether to try again."""
        headers = {"content-type": "application/json", **self._hook.headers}
        request = urllib.request.Request(self._hook.url, body, headers, method="POST")  # noqa: S310 checked
        try:
            with self._opener.open(request, timeout=self._hook.timeout_s):
                return "", False
        except urllib.error.HTTPError as error:
            with error:
                return f"HTTP {error.code}", error.code in (408, 425, 429) or error.code >= 500
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, True

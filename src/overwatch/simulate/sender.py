"""Requests to a collector, one after another: OTLP over HTTP in protobuf, tried again until it answers.

Rules: order is kept, so a request waits for the one before it; what waits is bounded, and what did not fit,
was refused or was left at the end is counted by reason. A thread of its own, so that a collector that is
away does not hold up the run's clock. Must not know what requests say.
"""

import threading
from collections import Counter, deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from overwatch import discovery
from overwatch.delivery.client import http_request
from overwatch.simulate.telling import Told

AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Answers after which the same request may be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Where to and how patiently."""

    endpoint: str
    """The collector's OTLP/HTTP address, e.g. `http://127.0.0.1:4318`."""
    first_wait_s: float = 0.2
    """Before the second try; doubles with each."""
    longest_wait_s: float = 5.0
    """Between two tries."""
    timeout_s: float = 5.0
    """For one try."""
    waiting_bytes: int = 256 << 20
    """Most bytes of requests that wait."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        try:
            named = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            named = False
        if not named:
            raise ValueError(f"endpoint {self.endpoint!r} is no address; write it like http://127.0.0.1:4318")

    @property
    def url(self) -> str:
        """Where logs go."""
        return f"{self.endpoint.rstrip('/')}/v1/logs"


class Sender:
    """Delivers requests in the order in which they are given."""

    def __init__(self, config: SenderConfig) -> None:
        self._config = config
        self._waiting: deque[Told] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self.delivered = 0
        """Records that the collector took."""
        self.lost: Counter[str] = Counter()
        """Records that it did not get, by reason."""
        self.trouble: str | None = None
        """Why the newest try failed; `None` after one that did not."""

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def put(self, told: Told) -> None:
        """Queue one request; returns at once. One that does not fit is counted as lost."""
        with self._changed:
            if self._bytes + len(told.body) > self._config.waiting_bytes:
                self.lost["too much was waiting"] += told.records
                return
            self._waiting.append(told)
            self._bytes += len(told.body)
            self._changed.notify_all()

    def drained(self, timeout_s: float) -> bool:
        """Whether nothing waits any more; waits up to `timeout_s` seconds for that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def close(self) -> None:
        """Stop; what still waits is counted as lost."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._abandoned.set()
        self._thread.join(2 * self._config.timeout_s)
        for told in self._waiting:
            self.lost["not delivered in time"] += told.records
        self._waiting.clear()

    def _run(self) -> None:
        while (told := self._next()) is not None:
            if not self._deliver(told):
                return
            with self._changed:
                self._bytes -= len(self._waiting.popleft().body)
                self._changed.notify_all()

    def _next(self) -> Told | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return None if self._closing else self._waiting[0]

    def _deliver(self, told: Told) -> bool:
        """Try until the collector took or refused it; `False` when told to stop before that."""
        wait_s = self._config.first_wait_s
        while True:
            answer = self._post(told.body)
            if answer is not None:
                if answer == 200:
                    self.delivered += told.records
                else:
                    self.lost[f"refused with {answer}"] += told.records
                return True
            if self._abandoned.wait(wait_s):
                return False
            wait_s = min(2 * wait_s, self._config.longest_wait_s)

    def _post(self, body: bytes) -> int | None:
        """The status that settles the request; `None` when it may be tried again."""
        headers = {"content-type": "application/x-protobuf"}
        token = discovery.token(self._config.url, "ingest")
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            reply = http_request(self._config.url, body, timeout_s=self._config.timeout_s, headers=headers)
        except OSError as error:
            self.trouble = str(error)
            return None
        self.trouble = None if reply.status == HTTPStatus.OK else f"answered {reply.status} {reply.reason}"
        return None if reply.status in AGAIN else reply.status

"""Progress of a run, POSTed to the Kubeflow Trainer that started its pod as a part of a TrainJob.

Owns what Kubeflow Trainer 2.2 or later gives a pod where its feature gate `TrainJobStatus` is on (KEP-2779,
plugin `trainjobstatus`): address, authority and token, and the JSON that belongs there
(`UpdateTrainJobStatusRequest`).

Rules: numbers are conflated and sent by a thread of its own, which nobody waits for longer than `LAST_S`; an
error is logged once and the newest numbers are sent later; the token is read for each request, as it is
replaced; it never travels in plain text. Must not know rings, spool or OTLP.
"""

import contextvars
import logging
import math
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from overwatch.catalog import Metric, policy
from overwatch.catalog.run import EPISODES, STEPS, UPDATES
from overwatch.delivery.connection import Connection, Request
from overwatch.delivery.destination import Tls, first_token, origin_of
from overwatch.events import RunFinished, RunStarted

log: Final = logging.getLogger("overwatch.exporter")

URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
AUTHORITY: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 a name, not a token
METRICS: Final[tuple[Metric, ...]] = (
    UPDATES, STEPS, EPISODES,
    policy.RETURN, policy.POLICY_LOSS, policy.VALUE_LOSS, policy.ENTROPY, policy.KL,
)  # fmt: skip
"""What is sent besides progress, under its short name; the TrainJob keeps the newest values alone."""
INTERVAL_S: Final = 10.0
"""From one request to the next; each is a write to the cluster's API server."""
MOST_S: Final = 300.0
"""The same after errors: twice as long each time, up to this."""
TIMEOUT_S: Final = 10.0
LAST_S: Final = 5.0
"""How long the end of a run waits for its last request."""


class TrainJob:
    """The TrainJob that a trainer is a part of."""

    def __init__(self, env: Mapping[str, str], started: RunStarted) -> None:
        """`env` is the trainer's environment. Raises `ValueError` where it has no address for a token."""
        url = env[URL]
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{URL}={url!r} is no https:// URL, so progress is not sent to the TrainJob")
        self._path, self._token, self._started = parts.path or "/", Path(env.get(TOKEN, "")), started
        trusted = Tls(authorities=env.get(AUTHORITY) or None)
        self._connection = Connection(origin_of(parts, trusted, env))
        self._changed = threading.Condition()
        self._newest: bytes | None = None
        self._is_last = False
        self._in_trouble = False
        self._wait_s = INTERVAL_S
        begin = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=begin, args=(self._run,), name="overwatch-trainjob", daemon=True
        )

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def report(self, update: int | None, values: Mapping[str, float], ended: RunFinished | None) -> None:
        """Take the newest numbers, by the names of their rows; they replace those that were not sent yet."""
        status = status_of(self._started, update, values, time.time_ns(), ended)
        with self._changed:
            self._newest = msgspec.json.encode({"trainerStatus": status})

    def finish(self) -> None:
        """Send what is newest now, and no more."""
        with self._changed:
            self._is_last = True
            self._changed.notify()

    def stop(self) -> None:
        """Wait `LAST_S` for the last request, then give it up."""
        self.finish()
        if self._thread.ident is not None:
            self._thread.join(LAST_S)
        self._connection.cut()

    def _run(self) -> None:
        """Send until the last one was tried."""
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._is_last, self._wait_s)
                body, self._newest, is_last = self._newest, None, self._is_last
            if body is not None:
                self._note(self._problem(body))
        self._connection.close()

    def _problem(self, body: bytes) -> str | None:
        """Send a status; what was wrong, `None` where it was taken."""
        token = first_token(self._token)
        if token is None:
            return f"no token in {self._token}"
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = Request(method="POST", path=self._path, headers=headers, body=body)
        try:
            reply = self._connection.exchange(request, time.monotonic() + TIMEOUT_S)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None if 200 <= reply.status < 300 else f"HTTP {reply.status}"

    def _note(self, problem: str | None) -> None:
        """Log the first of several problems; each makes the next try later."""
        if problem is not None and not self._in_trouble:
            log.warning("progress cannot be sent to the TrainJob: %s; tried again later", problem)
        self._in_trouble = problem is not None
        self._wait_s = min(self._wait_s * 2, MOST_S) if self._in_trouble else INTERVAL_S


def trainjob_of(env: Mapping[str, str], started: RunStarted) -> TrainJob | None:
    """The TrainJob that a trainer's environment names, `None` where there is none."""
    try:
        return TrainJob(env, started) if env.get(URL) else None
    except ValueError as error:
        log.warning("%s", error)
        return None


def status_of(
    started: RunStarted,
    update: int | None,
    values: Mapping[str, float],
    at: int,
    ended: RunFinished | None = None,
) -> dict[str, Any]:
    """A `TrainerStatus` at `at` (Unix nanoseconds); what is not known is left out.

    The percentage is that of the planned updates, and 100 once the run has completed. The rest is estimated
    from the updates since the start: those behind a run that goes on took none of its time.
    """
    planned, named = started.updates, {row.short: values.get(row.name) for row in METRICS}
    status: dict[str, Any] = {
        "metrics": [
            {"name": name, "value": f"{value:.6g}" if value % 1 else f"{value:.0f}"}
            for name, value in named.items()
            if value is not None and math.isfinite(value)
        ],
        "lastUpdatedTime": datetime.fromtimestamp(at // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if ended is not None and ended.outcome == "completed":
        return {"progressPercentage": 100, "estimatedRemainingSeconds": 0, **status}
    if planned and update is not None:
        status["progressPercentage"] = max(0, min(100, 100 * update // planned))
        done = update - (started.resumed or 0)
        if done > 0 and ended is None:
            left_s = (at - started.at) / 1e9 / done * (planned - update)
            status["estimatedRemainingSeconds"] = max(0, math.ceil(left_s))
    return status

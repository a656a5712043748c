"""The extension `health_check`: otelcol's health answer on its port, and a path for each kind of probe.

Rules: liveness fails only where a restart helps; readiness fails while no request is accepted, too. Must not
know why requests are refused.
"""

import re
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, Listener, plain
from overwatch.collector.setting_types import bounded
from overwatch.collector.tls import TlsConfig

FRAME_AGE_S: Final = 10.0
"""A latest frame older than this many seconds means that the aggregator does not keep up."""
_RECEIVER: Final = "receiver:otlp"
"""Who is in trouble when too much comes."""
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]*")
"""What stands in a request as it is written here, and is no pattern for the router."""
LIVE: Final = "/live"
"""The path for probes of startup and liveness."""
READY: Final = "/ready"
"""The path for probes of readiness."""


_ENTRY: Final = Entry(name="health_check", reads=None, acts=None, answer=plain)


class ComponentHealthConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.health_check.component_health`, with otelcol's keys."""

    include_recoverable_errors: bool = False
    """Whether a component in trouble, overload among them, makes the answer 503."""
    recovery_duration_s: float = 60.0
    """So long a component may be in trouble before it does, in seconds; 0 for at once."""

    def __post_init__(self) -> None:
        bounded(self, "recovery_duration_s", least=0)


class HealthCheckConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.health_check`."""

    endpoint: str
    """`host:port` to answer at."""
    path: str = "/"
    """The path of otelcol's answer; `/live` and `/ready` are answered beside it."""
    component_health: ComponentHealthConfig = ComponentHealthConfig()
    """What trouble of components means; a probe for whose sake a pod is started anew should leave it out."""
    tls: TlsConfig | None = None
    """TLS of this listener; plain text if left out, as probes know no authority of ours."""

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ValueError(
                f"path {self.path!r} is no / with letters, digits and -._~/ after it; write e.g. /health"
            )
        if self.path in (LIVE, READY):
            raise ValueError(f"path {self.path!r} is that of a probe; write / or e.g. /health")

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The address of probes, which speak no TLS of ours: that of all listeners is not its own."""
        only = Listener(path="endpoint", endpoint=self.endpoint, tls=self.tls, role=None, shares_tls=False)
        return (only,)


class HealthCheck:
    """Answers 200 while the collector accepts, 503 before and after, and in trouble if asked to."""

    def __init__(self, config: HealthCheckConfig, context: Context, _: str = "health_check") -> None:
        self._context = context
        counted = config.component_health
        patience_s = counted.recovery_duration_s if counted.include_recoverable_errors else None
        app = web.Application()
        app.router.add_get(config.path, partial(self._answer, patience_s=patience_s))
        app.router.add_get(LIVE, self._answer)
        app.router.add_get(READY, partial(self._answer, is_ready=True))
        self._listener = context.web_listener(config.endpoint, app, _ENTRY, config.tls, shared=False)

    def start(self) -> None:
        """Answer."""
        self._listener.start()

    def stop(self) -> None:
        """Answer no more."""
        self._listener.stop()

    async def _answer(
        self, request: web.Request, *, patience_s: float | None = None, is_ready: bool = False
    ) -> web.Response:
        self._look_at_frames()
        self._context.health.report(_RECEIVER, self._context.intake.overload)
        detailed = self._context.guard.may(Role.READ, request)
        is_accepting = not is_ready or self._context.intake.problem is None
        status, body = self._context.health.answer(
            detailed=detailed, patience_s=patience_s, is_accepting=is_accepting
        )
        return web.Response(status=status, body=body, content_type="application/json")

    def _look_at_frames(self) -> None:
        frame = self._context.notifier.latest
        if frame is None:
            return
        age_s = (self._context.now() - frame.tick) / 1e9
        found = f"the latest frame is {age_s:.0f} s old" if age_s > FRAME_AGE_S else None
        if found and (why := self._context.journal.problem):
            found = f"{found}: {why}"
        self._context.health.report("aggregator", found)

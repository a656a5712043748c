"""The exporter `prometheus`: the latest frame as a page for scrapers."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, Listener, plain
from overwatch.collector.setting_types import Duration, bounded, seconds
from overwatch.collector.tls import TlsConfig
from overwatch.serve.exposition import Exposition
from overwatch.serve.prometheus import MOST_ENVS, MOST_SERIES, PageLimits, RunPage

if TYPE_CHECKING:
    from overwatch.aggregator import Frame


NAME: Final = "prometheus"
_ENTRY: Final = Entry(name="metrics", reads=Role.READ, acts=Role.READ, answer=plain)


class PrometheusConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.prometheus`."""

    endpoint: str
    """`host:port` to serve `/metrics` of the runs at."""
    max_series: int = MOST_SERIES
    """Most series on the page; what has no room is counted on it."""
    metric_expiration: Duration = "5m"
    """For how long the last state of a run that ended stays, and readings of a machine that is gone."""
    lost_retention: Duration = "24h"
    """For how long the state of a lost run stays, unless it speaks again or its loss is acknowledged."""
    per_env: int = 0
    """Runs of at most so many envs have series of each env; others of so many of their worst, by rank."""
    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    def __post_init__(self) -> None:
        bounded(self, "max_series")
        for name in ("metric_expiration", "lost_retention"):
            if seconds(name, getattr(self, name)) <= 0:
                raise ValueError(f"{name} {getattr(self, name)!r} is not positive; write e.g. 5m")
        bounded(self, "per_env", least=0, most=MOST_ENVS)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The address of the page."""
        return (Listener(path="endpoint", endpoint=self.endpoint, tls=self.tls, role=Role.READ),)

    @property
    def limits(self) -> PageLimits:
        """What is on the page."""
        return PageLimits(
            most_series=self.max_series,
            expiration_s=seconds("metric_expiration", self.metric_expiration),
            lost_retention_s=seconds("lost_retention", self.lost_retention),
            per_env=self.per_env,
        )


class PrometheusExporter:
    """A frame sink behind a door; a page is of the frame that is newest when it is asked for."""

    def __init__(self, config: PrometheusConfig, context: Context, name: str = NAME) -> None:
        self._frame: Frame | None = None
        page, entry = RunPage(config.limits), replace(_ENTRY, name=name.replace(NAME, _ENTRY.name, 1))
        app = Exposition(lambda: page.families(self._frame), lambda: self._frame).app()
        self._listener = context.web_listener(config.endpoint, app, entry, config.tls)

    def publish(self, frame: "Frame") -> None:
        """Keep the latest frame."""
        self._frame = frame

    def start(self) -> None:
        """Serve."""
        self._listener.start()

    def stop(self) -> None:
        """Serve no more."""
        self._listener.stop()

    def close(self) -> None:
        """End of frames; the last one stays readable until `stop`."""

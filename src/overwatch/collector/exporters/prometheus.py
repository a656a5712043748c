"""The exporter `prometheus`: the latest frame as a page for scrapers."""

from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, plain
from overwatch.collector.tls import TlsConfig
from overwatch.serve.exposition import Exposition, Source
from overwatch.serve.prometheus import MOST_SERIES, families

if TYPE_CHECKING:
    from overwatch.aggregator import Frame


_ENTRY: Final = Entry(name="metrics", reads=Role.READ, acts=Role.READ, answer=plain)


class PrometheusConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.prometheus`."""

    endpoint: str
    """`host:port` to serve `/metrics` of the runs at."""
    max_series: int = MOST_SERIES
    """Most series on the page; what has no room is counted on it."""
    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    def __post_init__(self) -> None:
        if self.max_series < 1:
            raise ValueError(f"max_series {self.max_series} is not positive")


class PrometheusExporter:
    """A frame sink behind a door; the page is made when somebody asks, once a frame."""

    def __init__(self, config: PrometheusConfig, context: Context) -> None:
        self._context = context
        self._frame: Frame | None = None
        exposition = Exposition(
            Source(families=lambda _: families(self._frame, config.max_series), version=lambda: self._frame)
        )
        self._door = context.door(config.endpoint, exposition.app(), _ENTRY, config.tls)

    def publish(self, frame: "Frame") -> None:
        """Keep the latest frame."""
        self._frame = frame

    def start(self) -> None:
        """Serve."""
        self._context.board.note("metrics", "http", self._door.open(), secure=self._door.secure)

    def stop(self) -> None:
        """Serve no more."""
        self._door.close()

    def close(self) -> None:
        """End of frames; the last one stays readable until `stop`."""

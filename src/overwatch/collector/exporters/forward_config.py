"""`exporters.otlp` and `exporters.otlphttp`: where batches are forwarded to, by otelcol's keys.

Owns the keys, their defaults (otelcol's, but for the length of the queue), what of them cannot work, and the
destinations and the pace that they come to. Must not know batches.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from overwatch.collector.setting_types import Duration, Secret, bounded, seconds
from overwatch.collector.signals import WIRES
from overwatch.delivery.destination import Destination, Headers, Origin, Protocol, Tls, header_problem, proxy
from overwatch.delivery.sender import Pace
from overwatch.journal import Signal

Compression = Literal["gzip", "none", ""]
LONGEST_REQUESTED_S: Final = 60.0
"""The longest that a target may ask to be left alone, in seconds."""
_MOST_CONSUMERS: Final = 64
_KEPT_IN_PATH: Final = "/?%:@!$&'()*+,;=~"
_MOST_TIMEOUT_S: Final = 300.0


class ClientTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls` of an exporter, with otelcol's keys."""

    insecure: bool = False
    """Plain text where the endpoint has no scheme; for gRPC."""
    ca_file: Path | None = None
    """PEM: authorities of the target; the system's if left out."""
    cert_file: Path | None = None
    """PEM: the certificate that is shown to the target, with `key_file`."""
    key_file: Path | None = None
    """PEM: its private key, without a password."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Least TLS version; over gRPC only `1.2` can be promised."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) is not (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both or neither")


class RetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`retry_on_failure`."""

    enabled: bool = True
    """Without it each request is tried once."""
    initial_interval: Duration = "5s"
    """The first pause."""
    randomization_factor: float = 0.5
    """The share by which each pause is shorter or longer."""
    multiplier: float = 1.5
    """How much longer each pause is than the one before."""
    max_interval: Duration = "30s"
    """What the pauses grow to; a target may ask for up to a minute."""
    max_elapsed_time: Duration = "300s"
    """How long one request is tried before it is given up, counted and logged; `0` never gives up."""

    def __post_init__(self) -> None:
        self.pace()

    def pace(self) -> Pace:
        """How the target is tried again; raises `ValueError`."""
        first = seconds("initial_interval", self.initial_interval)
        longest = seconds("max_interval", self.max_interval)
        elapsed = seconds("max_elapsed_time", self.max_elapsed_time)
        if not 0 < first <= longest <= 3600:
            raise ValueError(
                f"initial_interval {self.initial_interval} and max_interval {self.max_interval} must be "
                "0 < initial <= max <= 1h"
            )
        if not (1 <= self.multiplier <= 100 and 0 <= self.randomization_factor < 1):
            raise ValueError(
                f"multiplier {self.multiplier} must be 1 to 100, "
                f"randomization_factor {self.randomization_factor} 0 to below 1"
            )
        patience = elapsed or float("inf")
        return Pace(
            first_s=first,
            longest_s=longest,
            ceiling_s=max(longest, LONGEST_REQUESTED_S),
            multiplier=self.multiplier,
            jitter=self.randomization_factor,
            patience_s=patience if self.enabled else 0.0,
        )


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sending_queue`; the queue is a place in the collector's journal."""

    enabled: bool = True
    """Always; what is acknowledged never waits for a target."""
    num_consumers: int = 10
    """Most requests on their way at once; those of one producer go one after the other."""
    queue_size: int | None = None
    """Most requests that wait; the oldest are given up beyond. Left out, the journal's room decides."""
    storage: str | None = None
    """`file_storage` insists on a journal on disk; left out, the queue lies wherever the journal does."""

    def __post_init__(self) -> None:
        if not self.enabled:
            raise ValueError("enabled: false cannot be had: what is acknowledged never waits for a target")
        bounded(self, "num_consumers", least=1, most=_MOST_CONSUMERS)
        bounded(self, "queue_size")
        if self.storage not in (None, "file_storage"):
            raise ValueError(f"storage {self.storage!r} is not known; there is file_storage")


class ForwardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both exporters have in common."""

    endpoint: str | None = None
    """The target: `host:port` or `https://host:port`; for HTTP a URL, to which `/v1/<signal>` is added."""
    timeout: Duration = "5s"
    """The longest that one try may take."""
    tls: ClientTls = ClientTls()
    """Who is trusted, and what is shown of ourselves."""
    headers: dict[str, Secret] = {}
    """Sent with each request; never shown."""
    token_file: Path | None = None
    """A file with a bearer token, read at each request; in place of a header `authorization`."""
    compression: Compression = "gzip"
    """`gzip` or `none`."""
    retry_on_failure: RetryConfig = RetryConfig()
    """When a target that is away or busy is tried again."""
    sending_queue: QueueConfig = QueueConfig()
    """What waits for the target."""

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            problem = header_problem(name, value.reveal())
            if problem:
                raise ValueError(f"headers.{name!r} {problem}")
        if self.token_file is not None and "authorization" in {name.lower() for name in self.headers}:
            raise ValueError("token_file and headers.authorization name two tokens; give one of them")
        if not 0 < seconds("timeout", self.timeout) <= _MOST_TIMEOUT_S:
            raise ValueError(f"timeout {self.timeout} must be more than 0 and at most {_MOST_TIMEOUT_S:g}s")
        if self.endpoint:
            self.destinations(frozenset((Signal.LOGS, Signal.METRICS, Signal.TRACES)))

    def destinations(self, signals: frozenset[Signal]) -> Mapping[Signal, Destination]:
        """Where each signal goes; raises `ValueError`."""
        raise NotImplementedError

    def to(self, protocol: Protocol, url: str) -> Destination:
        """One destination; raises `ValueError`."""
        parts = urlsplit(url)
        host, port = _server(url, parts)
        secure = parts.scheme == "https"
        if protocol == "grpc" and secure and self.tls.min_version != "1.2":
            raise ValueError("tls.min_version 1.3 cannot be promised over gRPC; use otlphttp")
        headers = {name.lower(): value.reveal() for name, value in self.headers.items()}
        via = None if protocol == "grpc" else proxy(parts.scheme, host, port, os.environ)
        return Destination(
            protocol=protocol,
            origin=Origin(host=host, port=port, tls=self._tls() if secure else None, via=via),
            path=quote(parts.path + (f"?{parts.query}" if parts.query else ""), safe=_KEPT_IN_PATH) or "/",
            headers=Headers(tuple(headers.items())),
            timeout_s=seconds("timeout", self.timeout),
            gzip=self.compression == "gzip",
            token_file=self.token_file,
        )

    def _tls(self) -> Tls:
        files = (self.tls.ca_file, self.tls.key_file, self.tls.cert_file)
        authorities, key, certificate = (None if file is None else str(file) for file in files)
        return Tls(
            authorities=authorities, key=key, certificate=certificate, min_version=self.tls.min_version
        )


class OtlpExporterConfig(ForwardConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.otlp`."""

    def destinations(self, signals: frozenset[Signal]) -> Mapping[Signal, Destination]:
        """All signals over one gRPC channel; raises `ValueError`."""
        url = self.endpoint or ""
        if "://" not in url:
            url = f"{'http' if self.tls.insecure else 'https'}://{url}"
        return {signal: self.to("grpc", url) for signal in signals}


class OtlpHttpExporterConfig(ForwardConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.otlphttp`."""

    timeout: Duration = "30s"
    """The longest that one try may take."""
    logs_endpoint: str | None = None
    """The whole URL for logs, in place of `endpoint`."""
    metrics_endpoint: str | None = None
    """The whole URL for metrics, in place of `endpoint`."""
    traces_endpoint: str | None = None
    """The whole URL for traces, in place of `endpoint`."""

    def destinations(self, signals: frozenset[Signal]) -> Mapping[Signal, Destination]:
        """Each signal at its URL; raises `ValueError`."""
        own = {
            Signal.LOGS: self.logs_endpoint,
            Signal.METRICS: self.metrics_endpoint,
            Signal.TRACES: self.traces_endpoint,
        }
        base = (self.endpoint or "").rstrip("/")
        return {
            signal: self.to("http/protobuf", own.get(signal) or f"{base}{WIRES[signal].path}")
            for signal in signals
        }


def _server(url: str, parts: SplitResult) -> tuple[str, int]:
    """Host and port; raises `ValueError`."""
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise ValueError(f"endpoint {url!r} is no server; write host:port (gRPC) or http(s)://host:port")
    if parts.username is not None:
        raise ValueError("endpoint must hold no user or password; put them in headers.authorization")
    named = host if ":" in host else host.encode("idna").decode()
    return named, port or (443 if parts.scheme == "https" else 80)

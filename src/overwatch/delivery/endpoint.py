"""Where telemetry goes and over which protocol.

Rules: what the trainer asked for wins, then `OTEL_EXPORTER_OTLP_*`, then the collector found on this
machine, then the default of OTLP. Headers, timeouts, compression and certificates are the OpenTelemetry
exporters' own business. Must not know what is sent.
"""

import logging
import os
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from overwatch import discovery

log: Final = logging.getLogger("overwatch.exporter")

Protocol = Literal["grpc", "http/protobuf"]
Signal = Literal["logs", "metrics", "traces"]

DEFAULT_HTTP: Final = "http://127.0.0.1:4318"
DEFAULT_GRPC: Final = "http://127.0.0.1:4317"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where one signal goes."""

    protocol: Protocol
    endpoint: str | None
    """Full URL for HTTP, the server's for gRPC; `None` leaves it to the environment."""
    shown: str
    """For a message to a person."""


def target(signal: Signal, asked: str | None, env: Mapping[str, str] = os.environ) -> Target:
    """The target of a signal; `asked` is what the trainer named."""
    protocol = _protocol(signal, asked, env)
    if asked is not None:
        return _at(asked, signal, protocol)
    own = env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    shared = env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if own or shared:
        return Target(protocol=protocol, endpoint=None, shown=own or shared or "")
    found = discovery.read(discovery.path(env))
    if found is not None:
        announced = found.otlp_grpc if protocol == "grpc" else found.otlp_http
        if announced is not None:
            return _at(announced, signal, protocol)
    return _at(DEFAULT_GRPC if protocol == "grpc" else DEFAULT_HTTP, signal, protocol)


def _at(base: str, signal: Signal, protocol: Protocol) -> Target:
    url = base if protocol == "grpc" else f"{base.rstrip('/')}/v1/{signal}"
    return Target(protocol=protocol, endpoint=url, shown=base)


def _protocol(signal: Signal, asked: str | None, env: Mapping[str, str]) -> Protocol:
    named = env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    word = (named or "").strip().lower()
    if word == "grpc":
        return "grpc"
    if word not in ("", "http/protobuf"):
        log.warning("OTLP protocol %r is not supported; sending http/protobuf", word)
    if not word and asked is not None and asked.rstrip("/").endswith(":4317"):
        return "grpc"
    return "http/protobuf"

"""The SDK as on a bare machine, and a tiny collector that keeps what the adapters emit."""

from collections.abc import Iterator

import pytest

from tests.overwatch.sdk.conftest import bare_environment
from tests.overwatch.sdk.sink import Sink, http_sink

__all__ = ["bare_environment", "sink"]


@pytest.fixture
def sink(bare_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    """Where a run goes that names no endpoint."""
    with http_sink() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.endpoint)
        yield server

"""Where telemetry goes: the trainer's word, the environment, the announced collector, the default."""

import os

import pytest

from overwatch import discovery
from overwatch.delivery.destination import Target, target
from overwatch.journal import Signal

FOUND = discovery.Endpoints(
    pid=os.getpid(), otlp_http="http://127.0.0.1:9318", otlp_grpc="http://127.0.0.1:9317"
)


def test_the_trainers_word_wins() -> None:
    """`start(endpoint=)` beats everything; paths are added for HTTP."""
    discovery.write(FOUND)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:4318"}
    assert target(Signal.LOGS, "http://here:1234/", env).endpoint == "http://here:1234/v1/logs"


def test_the_environment_is_left_to_opentelemetry() -> None:
    """A general or a signal's own endpoint is resolved by the exporter itself."""
    discovery.write(FOUND)
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
        found = target(Signal.LOGS, None, {name: "http://there:4318"})
        assert found == Target(protocol="http/protobuf", endpoint=None, shown="http://there:4318")


def test_the_announced_collector_is_found() -> None:
    """Without any word, the discovery file states where."""
    discovery.write(FOUND)
    assert target(Signal.METRICS, None, {}).endpoint == "http://127.0.0.1:9318/v1/metrics"
    grpc = target(Signal.METRICS, None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert (grpc.protocol, grpc.endpoint) == ("grpc", "http://127.0.0.1:9317")


def test_the_default_is_otlps_own() -> None:
    """Nothing is set: 4318 over HTTP, 4317 over gRPC, on this machine."""
    assert target(Signal.LOGS, None, {}).endpoint == "http://127.0.0.1:4318/v1/logs"
    assert (
        target(Signal.LOGS, None, {"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}).endpoint
        == "http://127.0.0.1:4317"
    )


def test_the_grpc_port_means_grpc() -> None:
    """An endpoint with port 4317 and no protocol named speaks gRPC."""
    assert target(Signal.LOGS, "http://h:4317", {}).protocol == "grpc"
    assert (
        target(Signal.LOGS, "http://h:4317", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}).protocol
        == "http/protobuf"
    )


def test_an_unknown_protocol_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """`http/json` is not spoken: it is logged, and protobuf is sent."""
    assert target(Signal.LOGS, None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}).protocol == "http/protobuf"
    assert "http/json" in caplog.text


def test_the_precedence_of_the_manual() -> None:
    """Argument, a signal's variable, the shared one, the announced collector, the default."""
    discovery.write(FOUND)
    shared, own = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
    env = {own: "http://own", shared: "http://shared", "OTEL_CONFIG_FILE": "/etc/otel/sdk.yaml"}

    assert target(Signal.METRICS, "http://argument", env).shown == "http://argument"
    assert [target(signal, None, env).shown for signal in (Signal.METRICS, Signal.LOGS)] == [
        "http://own",
        "http://shared",
    ]
    assert target(Signal.METRICS, None, {**env, own: ""}).shown == "http://shared"
    only_file = {**env, own: "", shared: ""}
    assert target(Signal.METRICS, None, only_file).shown == FOUND.otlp_http
    discovery.remove(os.getpid())
    assert target(Signal.METRICS, None, only_file).shown == "http://127.0.0.1:4318"

"""The settings of the exporters otlp and otlphttp: otelcol's words and defaults, and what they come to."""

from pathlib import Path

import pytest

from overwatch.collector.exporters.forward_config import (
    OtlpExporterConfig,
    OtlpHttpExporterConfig,
    QueueConfig,
    RetryConfig,
)
from overwatch.collector.settings import unusable
from overwatch.config import load
from overwatch.journal import Signal

LOGS = frozenset({Signal.LOGS})
ALL = frozenset({Signal.LOGS, Signal.METRICS, Signal.TRACES})


def test_the_defaults_are_those_of_the_opentelemetry_collector() -> None:
    """Retries for five minutes from five seconds on, ten consumers, gzip, 5 s for gRPC, 30 s for HTTP."""
    retry, queue = RetryConfig(), QueueConfig()
    pace = retry.pace()
    assert (pace.first_s, pace.longest_s, pace.multiplier) == (5.0, 30.0, 1.5)
    assert (pace.jitter, pace.patience_s, pace.ceiling_s) == (0.5, 300.0, 60.0)
    assert (queue.enabled, queue.num_consumers) == (True, 10)
    grpc = OtlpExporterConfig(endpoint="there:4317").destinations(LOGS)[Signal.LOGS]
    http = OtlpHttpExporterConfig(endpoint="http://there:4318").destinations(LOGS)[Signal.LOGS]
    assert (grpc.timeout_s, grpc.gzip, http.timeout_s, http.gzip) == (5.0, True, 30.0, True)


def test_nothing_is_given_up_for_time_where_patience_has_no_end() -> None:
    """`max_elapsed_time: 0`, in each of its spellings."""
    for nothing in (0, "0", "0s"):
        assert RetryConfig(max_elapsed_time=nothing).pace().patience_s == float("inf")
    assert RetryConfig(enabled=False).pace().patience_s == 0.0


@pytest.mark.parametrize(
    ("endpoint", "insecure", "expected"),
    [
        ("there:4317", False, "https://there:4317"),
        ("there:4317", True, "http://there:4317"),
        ("http://there:4317", False, "http://there:4317"),
        ("https://[::1]:4317", True, "https://[::1]:4317"),
    ],
)
def test_grpc_is_tls_unless_set_otherwise(endpoint: str, insecure: bool, expected: str) -> None:  # noqa: FBT001 a table's column
    """As in otelcol: the scheme decides, and `tls.insecure` where there is none."""
    config = load(None, [f"exporters.otlp.endpoint={endpoint}", f"exporters.otlp.tls.insecure={insecure}"])
    to = config.exporters["otlp"].destinations(ALL)

    assert {one.shown for one in to.values()} == {expected}
    assert {one.protocol for one in to.values()} == {"grpc"}


def test_http_paths_are_added_or_named() -> None:
    """`/v1/<signal>` below the endpoint, or the signal's own URL as it stands."""
    config = OtlpHttpExporterConfig(endpoint="http://there:4318/otlp/", logs_endpoint="http://logs/in?a=b")
    to = config.destinations(ALL)

    assert to[Signal.METRICS].path == "/otlp/v1/metrics"
    assert to[Signal.TRACES].path == "/otlp/v1/traces"
    assert (to[Signal.LOGS].path, to[Signal.LOGS].shown) == ("/in?a=b", "http://logs:80")


def test_headers_are_secrets() -> None:
    """Not in a representation, in no print."""
    config = load(None, ["exporters.otlp.endpoint=a:1", "exporters.otlp.headers={X-Key: canary-77}"])
    to = config.exporters["otlp"].destinations(LOGS)[Signal.LOGS]

    assert to.headers.pairs == (("x-key", "canary-77"),)
    assert "canary-77" not in f"{to!r}{config!r}"


@pytest.mark.parametrize("exporter", ["otlp", "otlphttp", "webhook"])
@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("'a b': canary-77", "is no name of a header"),
        ("'': canary-77", "is no name of a header"),
        ("'x:y': canary-77", "is no name of a header"),
        ("Content-Length: canary-77", "is set by the exporter itself"),
        ("x: canary-77→", "has a value that no header can carry"),
        (r'x: "canary-77\r\ny: z"', "has a value that no header can carry"),
    ],
)
def test_a_header_that_cannot_be_sent_is_named(exporter: str, header: str, problem: str) -> None:
    """When the configuration is read, not with the first request; without its value."""
    target = "url=http://a:1" if exporter == "webhook" else "endpoint=http://a:1"
    with pytest.raises(ValueError, match=problem) as refused:
        load(None, [f"exporters.{exporter}.{target}", f"exporters.{exporter}.headers={{{header}}}"])
    assert f"exporters.{exporter}" in str(refused.value)
    assert "canary-77" not in str(refused.value)


@pytest.mark.parametrize("exporter", ["otlp", "otlphttp"])
def test_port_0_is_no_target(exporter: str) -> None:
    """It stands for any free port, and nobody can be reached there."""
    with pytest.raises(ValueError, match=rf"exporters\.{exporter}: endpoint 'http://there:0.*' is no server"):
        load(None, [f"exporters.{exporter}.endpoint=http://there:0"])


def test_a_collector_does_not_send_to_itself() -> None:
    """The endpoint of its own receiver is refused."""
    with pytest.raises(ValueError, match=r"exporters\.otlp\.endpoint: the collector would send to itself"):
        load(
            None,
            [
                "service.pipelines.logs.exporters=[aggregator, otlp]",
                "exporters.otlp.endpoint=http://127.0.0.1:4317",
            ],
        )


def test_a_queue_on_disk_needs_a_disk() -> None:
    """`storage: file_storage` without the extension is refused; without `storage` memory will do."""
    sets = [
        "service.pipelines.logs.exporters=[aggregator, otlp]",
        "exporters.otlp.endpoint=there:4317",
        "service.extensions=[health_check, view]",
    ]
    assert load(None, sets).exporters["otlp"].sending_queue.storage is None
    with pytest.raises(ValueError, match="file_storage does not run; add it"):
        load(None, [*sets, "exporters.otlp.sending_queue.storage=file_storage"])


def test_a_version_that_grpc_cannot_promise_is_refused() -> None:
    """TLS 1.3 and no less is to be had over HTTP only."""
    least = "exporters.{}.tls.min_version='1.3'"
    with pytest.raises(ValueError, match="cannot be promised over gRPC; use otlphttp"):
        load(None, ["exporters.otlp.endpoint=a:1", least.format("otlp")])
    config = load(None, ["exporters.otlphttp.endpoint=https://a:1", least.format("otlphttp")])
    tls = config.exporters["otlphttp"].destinations(LOGS)[Signal.LOGS].origin.tls
    assert tls is not None
    assert tls.min_version == "1.3"


def test_files_that_cannot_be_used_are_named_before_a_start(tmp_path: Path) -> None:
    """`validate` reads what `tls` names, where a pipeline has the exporter."""
    (tmp_path / "ca.pem").write_text("no certificate")
    named = f"exporters.otlp.tls.ca_file={tmp_path / 'ca.pem'}"
    used = "service.pipelines.logs.exporters=[aggregator, otlp]"

    (wrong,) = unusable(load(None, ["exporters.otlp.endpoint=a:1", named, used]))
    assert wrong.startswith(f"exporters.otlp.tls: {tmp_path / 'ca.pem'}: ")
    assert list(unusable(load(None, ["exporters.otlp.endpoint=a:1", named]))) == []

"""What is remembered of the way of a trainer's telemetry."""

from overwatch.sdk.way import way


def test_all_that_makes_the_way_is_remembered_and_nothing_else() -> None:
    """Endpoints, headers, proxies and the place of announcements; no other word of the environment."""
    words = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "authorization=secret",
        "OTEL_METRICS_EXPORTER": "none",
        "HTTPS_PROXY": "http://proxy:3128",
        "no_proxy": "b",
        "XDG_RUNTIME_DIR": "/run/user/7",
    }
    found = way({**words, "OTEL_SERVICE_NAME": "train", "WANDB_API_KEY": "another secret"})
    assert {name: found[name] for name in words} == words
    assert set(found) - set(words) == {"TMPDIR"}

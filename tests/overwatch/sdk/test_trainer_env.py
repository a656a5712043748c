"""What of the environment is kept for the destination of a trainer's telemetry."""

from overwatch.sdk.trainer_env import otlp_env


def test_all_that_decides_the_destination_is_kept_and_nothing_else() -> None:
    """Endpoints, headers, proxies and the place of announcements; no other variable."""
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "authorization=secret",
        "OTEL_METRICS_EXPORTER": "none",
        "HTTPS_PROXY": "http://proxy:3128",
        "no_proxy": "b",
        "XDG_RUNTIME_DIR": "/run/user/7",
    }
    found = otlp_env({**given, "OTEL_SERVICE_NAME": "train", "WANDB_API_KEY": "another secret"})
    assert {name: found[name] for name in given} == given
    assert set(found) - set(given) == {"TMPDIR"}

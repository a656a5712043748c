"""What `OTEL_EXPORTER_OTLP_*` sets about the way, a signal's own word first."""

from pathlib import Path

import pytest

from overwatch.delivery import Destination, destination
from overwatch.delivery.destination import Tls
from overwatch.journal import Signal


def find(env: dict[str, str], signal: Signal = Signal.LOGS, requested: str | None = None) -> Destination:
    """The destination in an environment."""
    return destination(signal, requested, env)


def test_the_shared_endpoint_gets_the_signals_path_and_an_own_one_is_used_as_it_is() -> None:
    """OTLP over HTTP: a base for all, or a full URL for one."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318/base/",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces/in?key=a b",
    }
    logs, traces = find(env), find(env, Signal.TRACES)
    assert (logs.shown, logs.path) == ("http://all:4318", "/base/v1/logs")
    assert (traces.shown, traces.path) == ("https://traces:443", "/in?key=a%20b")
    assert find({}).shown == "http://127.0.0.1:4318"
    assert find({}, requested="localhost:9999").shown == "http://localhost:9999"
    assert find({}, requested="http://[::1]:9").origin.authority == "[::1]:9"


def test_grpc_without_a_scheme_is_tls_unless_it_is_set_to_insecure() -> None:
    """A scheme wins over `INSECURE`."""
    env = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "host:4317"}
    assert find(env).shown == "https://host:4317"
    insecure = env | {"OTEL_EXPORTER_OTLP_LOGS_INSECURE": "True"}
    assert find(insecure).shown == "http://host:4317"
    assert find(insecure | {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://host:4317"}).origin.tls is not None
    assert find(insecure | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host"}).origin.tls is None


def test_a_signals_own_words_win() -> None:
    """Certificates, timeout and compression."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://host",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "key.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "cert.pem",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
        "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE": "own.pem",
    }
    logs, metrics = find(env), find(env, Signal.METRICS)
    assert logs.origin.tls == Tls(authorities="own.pem", key="key.pem", certificate="cert.pem")
    assert (logs.timeout_s, logs.gzip) == (2.5, False)
    assert metrics.origin.tls == Tls(authorities="ca.pem", key="key.pem", certificate="cert.pem")
    assert (metrics.timeout_s, metrics.gzip) == (3.0, True)


def test_a_timeout_is_in_seconds_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """What can only be milliseconds is read so; what is no time is logged."""
    expected = {"": 10.0, "0.5": 0.5, "10000": 10.0, "1000": 1.0, "900": 60.0, "1e12": 60.0}
    for word, seconds in expected.items():
        assert find({"OTEL_EXPORTER_OTLP_TIMEOUT": word}).timeout_s == seconds, word
    assert not caplog.text
    for word in ("0", "-1", "nan", "ten"):
        assert find({"OTEL_EXPORTER_OTLP_TIMEOUT": word}).timeout_s == 10.0
    assert "'ten'" in caplog.text


def test_headers_are_decoded_and_their_values_are_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Not in a log line, not in a representation; what cannot be a header is left out."""
    words = (
        "Authorization=Bearer%20SECRET,x-a = 1 ,SECRET,no name=SECRET,x-b=SECRET%0d%0ab: c,host=SECRET,x-c="
    )
    found = find({"OTEL_EXPORTER_OTLP_HEADERS": words})
    assert found.headers.pairs == (("authorization", "Bearer SECRET"), ("x-a", "1"), ("x-c", ""))
    assert len(caplog.messages) == 4
    assert "SECRET" not in caplog.text + repr(found)


def test_a_user_in_the_url_becomes_a_header_and_is_not_shown() -> None:
    """As browsers and `requests` do; a header of one's own wins."""
    requested = "http://me:SE%3ACRET@host:1"
    found = find({}, requested=requested)
    assert found.headers.pairs == (("authorization", "Basic bWU6U0U6Q1JFVA=="),)
    assert found.shown == "http://host:1"
    own = find({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=mine"}, requested=requested)
    assert own.headers.pairs == (("authorization", "mine"),)


def test_an_unknown_compression_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is compressed."""
    assert not find({"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}).gzip
    assert "zstd" in caplog.text


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://host",
        "http://:4318",
        "unix:///run/x.sock",
        "http://host:port",
        "http://a..b",
        "http://" + "a" * 64,
    ],
)
def test_an_endpoint_that_is_no_server_is_an_error(endpoint: str) -> None:
    """The one thing that a person must put right."""
    with pytest.raises(ValueError, match=r"endpoint|[Pp]ort|label"):
        find({}, requested=endpoint)


def test_the_token_of_a_file_is_read_at_each_request(tmp_path: Path) -> None:
    """Its first line; a file of which nothing can be sent sends nothing, and a header that is named wins."""
    file = tmp_path / "token"
    env = {"OVERWATCH_INGEST_TOKEN_FILE": str(file), "XDG_RUNTIME_DIR": str(tmp_path)}
    to = destination(Signal.LOGS, "http://127.0.0.1:1", env)
    seen = [dict(to.headers_now).get("authorization")]
    for text in ("first\nsecond\n", "\n third", "", "\x00"):
        file.write_text(text)
        seen.append(dict(to.headers_now).get("authorization"))
    named = env | {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20named"}
    wins = destination(Signal.LOGS, "http://127.0.0.1:1", named)

    assert seen == [None, "Bearer first", "Bearer third", None, None]
    assert dict(wins.headers_now)["authorization"] == "Bearer named"

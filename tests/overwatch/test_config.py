"""The configuration: what is laid over what, what is refused, and in which words."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from overwatch.collector.receivers.otlp_grpc import GrpcConfig
from overwatch.collector.receivers.otlp_http import HttpConfig
from overwatch.config import ConfigError, expand, load, load_named, shipped
from overwatch.journal import Signal

ROOT = Path(__file__).parents[2]


def fails(*sets: str, text: str | None = None, folder: Path | None = None) -> str:
    """The message of a configuration that is refused."""
    path = None
    if text is not None:
        assert folder is not None
        path = folder / "collector.yaml"
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, sets)
    return str(caught.value)


def test_the_shipped_ports_are_those_that_are_documented() -> None:
    """Every default address, on loopback."""
    config = load(None, [])

    assert config.receivers["otlp"].protocols.http.endpoint == "127.0.0.1:4318"
    assert config.receivers["otlp"].protocols.grpc.endpoint == "127.0.0.1:4317"
    assert config.exporters["prometheus"].endpoint == "127.0.0.1:8889"
    assert config.extensions["health_check"].endpoint == "127.0.0.1:13133"
    assert config.extensions["view"].endpoint == "127.0.0.1:4380"
    assert config.service.telemetry.metrics.address == "127.0.0.1:8888"


def test_written_limits_equal_those_of_the_components() -> None:
    """Where the shipped file repeats a default, it is the component's own."""
    protocols = load(None, []).receivers["otlp"].protocols

    assert protocols.http == HttpConfig(endpoint="127.0.0.1:4318")
    assert protocols.grpc == GrpcConfig(endpoint="127.0.0.1:4317")


def test_data_lies_where_the_environment_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data folder, else the state folder, else the one under the home."""
    places = []
    for name, value in (("HOME", "/home/jo"), ("XDG_STATE_HOME", "/state"), ("OVERWATCH_DATA_DIR", "/data")):
        if name == "HOME":
            monkeypatch.delenv("XDG_STATE_HOME", raising=False)
            monkeypatch.delenv("OVERWATCH_DATA_DIR", raising=False)
        monkeypatch.setenv(name, value)
        places.append(load(None, []).exporters["otlp_file"].path)

    assert places == [
        Path("/home/jo/.local/state/overwatch/otlp"),
        Path("/state/overwatch/otlp"),
        Path("/data/otlp"),
    ]


def test_a_file_is_laid_over_the_shipped_one(tmp_path: Path) -> None:
    """Keys that the file leaves out keep their defaults; a set wins over both."""
    file = tmp_path / "mine.yaml"
    file.write_text("exporters: {prometheus: {endpoint: '127.0.0.1:1'}, snapshots: }\nextensions:\n")
    config = load(file, ["exporters.prometheus.endpoint=127.0.0.1:2"])

    assert config.exporters["prometheus"].endpoint == "127.0.0.1:2"
    assert config.extensions["view"].endpoint == "127.0.0.1:4380"


def test_pipelines_of_a_file_replace_the_shipped_ones(tmp_path: Path) -> None:
    """What a file does not list does not run."""
    file = tmp_path / "mine.yaml"
    file.write_text("service: {pipelines: {logs: {receivers: [otlp], exporters: [aggregator]}}}")
    config = load(file, [])

    assert config.signals == {Signal.LOGS}
    assert config.exporting("otlp_file") == frozenset()
    assert config.service.pipelines.snapshots is None


def test_a_pipeline_that_is_null_is_left_out(tmp_path: Path) -> None:
    """It takes nothing in, whether a file states it or a setting; the others stay."""
    file = tmp_path / "collector.yaml"
    file.write_text(
        "service: {pipelines: {logs: {receivers: [otlp], exporters: [aggregator]}, traces: null}}"
    )
    assert load(None, ["service.pipelines.traces=null"]).signals == {Signal.LOGS, Signal.METRICS}
    assert load(file, ["service.extensions=[]"]).signals == {Signal.LOGS}


def test_a_value_that_is_one_variable_takes_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number from the environment is a number, as in otelcol."""
    monkeypatch.setenv("LIMIT", "1024")
    protocols = (
        load(None, ["receivers.otlp.protocols.http.max_request_body_size=${env:LIMIT}"])
        .receivers["otlp"]
        .protocols
    )

    assert protocols.http.max_request_body_size == 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$$HOME and $x", "$HOME and $x"),
        ("${env:A}/${B}", "a/b"),
        ("${env:NONE:-${env:A}/x}", "a/x"),
        ("${env:NONE:-}", ""),
        ("${env:EMPTY:-d}", "d"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    """Variables, defaults, nesting, and dollars that are meant."""
    assert expand(text, {"A": "a", "B": "b", "EMPTY": ""}, "here") == expected


@pytest.mark.parametrize("text", ["${env:NONE}", "${env:A", "${env:1A}", "${}"])
def test_expansion_that_fails_names_the_path(text: str) -> None:
    """A variable that is not set, or cannot be read, is an error at its place."""
    with pytest.raises(ConfigError, match=r"^exporters\.x: "):
        expand(text, {"A": "a"}, "exporters.x")


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        ("exporters.promethues.endpoint=x", ["exporters.promethues: unknown key", "'prometheus'"]),
        ("receivers.otlp.protocols.http.endpont=x", ["http.endpont: unknown key", "'endpoint'"]),
        ("servcie.x=1", ["servcie: unknown key", "'service'"]),
        ("exporters.prometheus.endpoint=7", ["exporters.prometheus.endpoint", "`str`"]),
        ("exporters.prometheus.endpoint=nowhere", ["exporters.prometheus.endpoint", "host:port"]),
        ("exporters.prometheus.endpoint=::1:80", ["brackets"]),
        ("receivers.otlp.protocols.http.max_request_body_size=0", ["max_request_body_size 0", "http"]),
        ("receivers.otlp.protocols.grpc.max_concurrent_calls=many", ["grpc.max_concurrent_calls", "`int`"]),
        ("exporters.aggregator.journal_size_mib=0", ["journal_size_mib 0"]),
        ("extensions.health_check.path=health", ["path 'health'", "/health"]),
        ("extensions.health_check.path='/a b'", ["extensions.health_check", "path '/a b'", "/health"]),
        ("extensions.health_check.path='/{'", ["extensions.health_check", "path '/{'", "/health"]),
        ("extensions.health_check.path=/santé", ["extensions.health_check", "path '/santé'", "/health"]),
        ("service.pipelines.logs.exporters=[kafka]", ["pipelines.logs.exporters", "'kafka'", "otlp_file"]),
        ("service.pipelines.logs.receivers=[prometheus]", ["service.pipelines.logs.receivers", "otlp"]),
        ("service.pipelines.snapshots.exporters=[aggregator]", ["snapshots.exporters", "prometheus"]),
        ("service.extensions=[veiw]", ["service.extensions", "'veiw'", "view"]),
        ("service.extensions=[view, view]", ["service.extensions", "twice"]),
        ("service.pipelines.logs.exporters=[otlp_file]", ["pipeline", "aggregator"]),
        ("service.pipelines.metrics.exporters=[otlp_file]", ["service.pipelines.metrics", "aggregator"]),
        ("service.pipelines.logs.receivers=[]", ["service.pipelines.logs.receivers", "[otlp]"]),
        ("service.pipelines.snapshots.receivers=[]", ["snapshots.receivers", "[aggregator]"]),
        ("service.pipelines.traces.exporters=[]", ["pipelines.traces.exporters", "lost", "otlp_file"]),
        ("no-equals", ["--set 'no-equals'"]),
        ("a..b=1", ["--set 'a..b=1'"]),
        ("service.extensions=[view", ["--set service.extensions", "YAML"]),
        ("service.extensions=&a [*a]", ["--set service.extensions", "recursive", "column 1"]),
        (f"service.extensions={'[' * 5000}", ["--set service.extensions", "nested too deeply"]),
        ("exporters.otlp_file.path=2026-13-45", ["--set exporters.otlp_file.path", "month"]),
        ("exporters.otlp_file.path=~nobody-of-here/x", ["exporters.otlp_file.path", "home", "whole path"]),
        ('exporters.otlp_file.path="a\\0b"', ["exporters.otlp_file.path", "NUL"]),
        ('exporters.aggregator.baseline="\\ud800"', ["exporters.aggregator.baseline", "UTF-8"]),
        ('service.security.allowed_hosts=["\\ud800"]', ["service.security.allowed_hosts[0]", "UTF-8"]),
        ("exporters.webhook.headers={1: x}", ["exporters.webhook.headers: ", "for a key"]),
        ('exporters.webhook.headers={"\\ud800": x}', ["exporters.webhook.headers", "UTF-8"]),
        ("receivers.otlp.protocols.grpc.read_timeout_s=3000000", ["read_timeout_s 3000000", "2147483"]),
        ("receivers.otlp.protocols.grpc.max_connection_age_s=1.0e+9", ["max_connection_age_s 1000000000"]),
        ("receivers.otlp.protocols.grpc.max_concurrent_streams=3000000000", ["streams 3000000000", "1.."]),
        ("receivers.otlp.protocols.http.read_timeout_s=.nan", ["http.read_timeout_s", "nan"]),
        ("receivers.otlp.protocols.grpc.read_timeout_s=.inf", ["grpc.read_timeout_s", "inf"]),
        ("exporters.aggregator.journal_size_mib=1_000_000_000_000_000_000", ["journal_size_mib", "at most"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(item: str, parts: list[str]) -> None:
    """The path, the value and the fix are in the message."""
    stated = fails(item)

    assert [part for part in parts if part not in stated] == []


@pytest.mark.parametrize(
    "endpoint", ["0.0.0.0:4318", "[::]:4318", ":4318", "192.0.2.1:4318", "example.org:4318"]
)
def test_an_address_that_others_reach_is_refused(endpoint: str) -> None:
    """Such a bind needs its switch, and the message states which."""
    path = "receivers.otlp.protocols.http.endpoint"
    item = f"{path}='{endpoint}'"
    stated = fails(item)

    assert stated.startswith(f"{path}: ")
    assert "service.security.allow_insecure_bind: true" in stated
    allowed = load(None, [item, "service.security.allow_insecure_bind=true"])
    assert allowed.receivers["otlp"].protocols.http.endpoint == endpoint


@pytest.mark.parametrize("text", ["- a list", "just words", "a: [", "\tx: 1"])
def test_a_file_that_is_not_a_mapping_is_named(tmp_path: Path, text: str) -> None:
    """The file's name is in the message."""
    assert "collector.yaml" in fails(text=text, folder=tmp_path)


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Of two sections the first would be lost without a word; the same key elsewhere is another one."""
    text = "exporters:\n  otlp: {endpoint: 'a:1'}\nservice: {}\nexporters:\n  webhook: {}\n"
    stated = fails(text=text, folder=tmp_path)

    assert "'exporters' is there twice in line 4, column 1" in stated


def test_what_an_anchor_holds_may_be_merged_and_overridden(tmp_path: Path) -> None:
    """A merge is no key, and what stands beside it wins."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "exporters:\n  webhook/a: &a {per_minute: 3, timeout_s: 4}\n  webhook/b: {<<: *a, per_minute: 5}\n"
    )
    hook = load(file, []).exporters["webhook/b"]

    assert (hook.per_minute, hook.timeout_s) == (5, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "exporters: {webhook/a: {url: 'http://a/'}, webhook/b: {}, command: {argv: [x]}}",
            ("prometheus", "snapshots", "webhook/a", "command"),
        ),
        (
            (
                "exporters: {webhook: {url: 'http://a/'}}\n"
                "service: {pipelines: {logs: {receivers: [otlp], exporters: [aggregator]},\n"
                "  snapshots: {receivers: [aggregator], exporters: [prometheus]}}}"
            ),
            ("prometheus",),
        ),
    ],
)
def test_a_notifier_that_is_configured_works_where_no_pipelines_are(
    tmp_path: Path, text: str, expected: tuple[str, ...]
) -> None:
    """One address is enough; who writes pipelines has named what is in them."""
    file = tmp_path / "overwatch.yaml"
    file.write_text(text, encoding="utf-8")

    snapshots = load(file, []).service.pipelines.snapshots
    assert snapshots is not None
    assert snapshots.exporters == expected


def test_what_is_no_yaml_is_reported_in_one_line_that_holds_no_secret(tmp_path: Path) -> None:
    """The place is enough; the text around it may be a token."""
    text = "service: {security: {tokens: {read: {token: s3cr3t, 's3cr3t}}}}\n"
    stated = [
        fails(text=text, folder=tmp_path),
        fails("exporters.webhook.headers.authorization=[s3cr3t"),
        fails("exporters.webhook.headers.authorization=s3cr3t${s3cr3t"),
    ]

    assert [one for one in stated if "s3cr3t" in one or "\n" in one] == []
    assert "line" in stated[0]
    assert "exporters.webhook.headers.authorization" in stated[1]
    assert "$$" in stated[2]


@pytest.mark.parametrize("text", ["[::1]:4318", "2026-13-45", "a: b: c"])
def test_a_variable_that_is_no_yaml_is_its_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in otelcol; an IPv6 address is no YAML, and where a text is wanted dates and lists are texts too."""
    monkeypatch.setenv("TEXT", text)
    monkeypatch.setenv("DAY", "2026-11-24")
    config = load(None, ["exporters.otlp_file.path=${env:TEXT}", "exporters.snapshots.path=${env:DAY}"])

    assert config.exporters["otlp_file"].path == Path(text).absolute()
    assert config.exporters["snapshots"].path == Path("2026-11-24").absolute()
    assert fails("exporters.aggregator.journal_size_mib=${env:TEXT}").startswith("exporters.aggregator.")


def test_a_variable_that_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page and no log could show it."""
    monkeypatch.setenv("FOLDER", "/data/\udcff")

    assert fails("exporters.otlp_file.path=${env:FOLDER}").startswith("exporters.otlp_file.path: ")


def test_a_file_may_be_a_pipe() -> None:
    """As `--config <(...)` and `--config /dev/stdin` are."""
    reading, writing = os.pipe()
    os.write(writing, b"extensions: {view: {endpoint: 127.0.0.1:9}}")
    os.close(writing)
    try:
        found = load(Path(f"/dev/fd/{reading}"), ())
    finally:
        os.close(reading)
    assert found == load(None, ["extensions.view.endpoint=127.0.0.1:9"])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml"):
        load(tmp_path / "absent.yaml", [])


def test_the_digest_follows_the_content() -> None:
    """Two loads have one digest, another address another."""
    digests = [load(None, sets).digest() for sets in ([], [], ["exporters.prometheus.endpoint=127.0.0.1:1"])]

    assert digests[0] == digests[1] != digests[2]


def test_the_wheel_carries_the_shipped_file(tmp_path: Path) -> None:
    """An installed Overwatch has its defaults without the repository."""
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(wheel) as packed:
        assert packed.read("overwatch/collector.yaml").decode() == shipped()


FILES = ["extensions.view.tls.cert_file=/a", "extensions.view.tls.key_file=/b"]


@pytest.mark.parametrize("written", ["1.3", "'1.3'"])
def test_a_word_that_looks_like_a_number_stays_a_word(written: str, tmp_path: Path) -> None:
    """As in otelcol: by `--set`, in a file, and from the environment."""
    key = "extensions.view.tls.min_version"
    made = load(None, [*FILES, f"{key}={written}"])
    assert made.extensions["view"].tls.min_version == "1.3"
    file = tmp_path / "own.yaml"
    file.write_text(f"extensions: {{view: {{tls: {{min_version: {written}}}}}}}")
    assert load(file, FILES).extensions["view"].tls.min_version == "1.3"


def test_a_word_of_a_variable_that_looks_like_a_number_stays_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a number that is wanted is a number, however it comes."""
    monkeypatch.setenv("LEAST", "1.3")
    monkeypatch.setenv("SIZE", "7")
    sets = [
        *FILES,
        "exporters.aggregator.journal_size_mib=${env:SIZE}",
    ]
    made = load(None, [*sets, "extensions.view.tls.min_version=${env:LEAST}"])
    assert made.extensions["view"].tls.min_version == "1.3"
    assert made.exporters["aggregator"].journal_size_mib == 7


def test_a_number_that_is_no_such_word_is_named_as_it_is_written() -> None:
    """A wrong one, too."""
    with pytest.raises(ConfigError, match=r"min_version.*1\.30"):
        load(None, [*FILES, "extensions.view.tls.min_version=1.30"])


ENDPOINTS = {
    "receivers.otlp.protocols.http.endpoint": "127.0.0.1:4318",
    "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:4317",
    "exporters.prometheus.endpoint": "127.0.0.1:8889",
    "extensions.view.endpoint": "127.0.0.1:4380",
    "extensions.health_check.endpoint": "127.0.0.1:13133",
    "service.telemetry.metrics.address": "127.0.0.1:8888",
}


@pytest.mark.parametrize(("path", "value"), ENDPOINTS.items())
@pytest.mark.parametrize("how", ["set", "file", "env"])
def test_an_endpoint_that_a_person_names_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, path: str, value: str
) -> None:
    """By each way, be its value the shipped one; all others may move."""
    monkeypatch.setenv("PLACE", value)
    text = "${env:PLACE}" if how == "env" else value
    if how == "set":
        found = load_named(None, [f"{path}={text}"])[1]
    else:
        nested: object = text
        for key in reversed(path.split(".")):
            nested = {key: nested}
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(nested))
        found = load_named(tmp_path / "own.yaml", [])[1]
    assert found == {value}


def test_nothing_is_named_by_default() -> None:
    """The shipped endpoints may move."""
    assert load_named(None, ["exporters.prometheus.max_series=10"])[1] == frozenset()


def test_a_page_of_ones_own_name_is_named() -> None:
    """A second page has no shipped address."""
    more = "exporters={prometheus/second: {endpoint: '127.0.0.1:9464'}}"
    assert load_named(None, [more])[1] == {"127.0.0.1:9464"}


def test_the_last_source_that_names_a_key_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped, then the file, then `--set`; a variable counts only where a value names it."""
    file = tmp_path / "c.yaml"
    file.write_text("exporters: {otlp_file: {path: '/file/${env:PLACE:-else}'}}\n")
    monkeypatch.setenv("OVERWATCH_DATA_DIR", "/data")
    for name in ("OTEL_CONFIG_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT", "OVERWATCH_EXPORTERS_OTLP_FILE_PATH"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("PLACE", "")

    def path(given: Path | None, *sets: str) -> str:
        return str(load(given, sets).exporters["otlp_file"].path)

    assert path(None) == "/data/otlp"
    assert path(file) == "/file/else"
    monkeypatch.setenv("PLACE", "named")
    assert path(file) == "/file/named"
    assert path(file, "exporters.otlp_file.path=/set/${env:PLACE}") == "/set/named"
    assert path(file, "exporters.otlp_file.path=/one", "exporters.otlp_file.path=/two") == "/two"

"""Several exporters of one kind: each with settings, a place, counters and a condition of its own."""

import json
import re
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from overwatch.cli.configuration import config as config_command
from overwatch.collector import Service
from overwatch.collector.exporters.webhook import WebhookConfig
from overwatch.config import ConfigError, as_yaml, load
from overwatch.events import LogLine, Severity
from overwatch.feeds.recording import Recording
from tests import fakes
from tests.overwatch.collector.exporters.test_webhook import receiver
from tests.overwatch.collector.running import eventually, http, reported, running

TEXT = """
exporters:
  otlp_file/copy: {path: COPY}
  webhook/chat: {url: "http://127.0.0.1:9/x", shape: slack, headers: {x-key: "${env:CANARY}"}}
  webhook/unused:
  snapshots/copy: {path: COPY.jsonl}
  prometheus/teams: {endpoint: "127.0.0.1:0", per_env: 3}
service:
  pipelines:
    logs: {receivers: [otlp], exporters: [aggregator, otlp_file, otlp_file/copy]}
    snapshots: {receivers: [aggregator], exporters: [webhook/chat, snapshots/copy, prometheus/teams]}
"""


def give(service: Service, body: bytes) -> None:
    """Hand a request to a collector, which must accept it."""
    url = f"{service.endpoints.otlp_http}/v1/logs"
    assert http(url, body, content_type="application/x-protobuf").status == 200


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a named exporter of every kind."""
    monkeypatch.setenv("CANARY", "s3cr3t-canary")
    path = tmp_path / "collector.yaml"
    path.write_text(TEXT.replace("COPY", str(tmp_path / "copy")))
    return path


def test_what_is_printed_is_what_was_written_and_can_be_read_again(written: Path) -> None:
    """Each stands under its own name, with the defaults of its kind, and no secret."""
    found = load(written, [])
    printed = as_yaml(found)

    shown = yaml.safe_load(printed)["exporters"]
    assert list(yaml.safe_load(TEXT)["exporters"]) == [name for name in shown if "/" in name]
    assert shown["otlp_file/copy"]["compression"] == "zstd"
    assert shown["prometheus/teams"]["per_env"] == 3
    assert shown["webhook"].get("url") is None
    assert "s3cr3t" not in printed
    again = written.with_name("printed.yaml")
    again.write_text(printed.replace("[REDACTED]", "http://127.0.0.1:9/x"))
    assert list(load(again, []).every(WebhookConfig)) == ["webhook", "webhook/chat", "webhook/unused"]
    assert load(written, []).digest() == found.digest()
    assert load(written, ["exporters.prometheus/teams.per_env=4"]).digest() != found.digest()


@pytest.mark.parametrize(
    ("setting", "stated"),
    [
        ("exporters.webhook/chat.ulr=1", "exporters.webhook/chat.ulr: unknown key; did you"),
        ("exporters.otlp_file/copy.budget.run_mib=x", "exporters.otlp_file/copy.budget.run_mib: Exp"),
        ("exporters.foo/x.a=1", "exporters.foo/x: there are no several exporters of type 'foo'"),
        ("exporters.aggregator/x.a=1", "exporters.aggregator/x: there are no several"),
        ("exporters.otlp_file/.a=1", "exporters.otlp_file/: '' is no name"),
        ("exporters.otlp_file/a b.path=1", "exporters.otlp_file/a b: 'a b' is no name"),
        ("exporters.webhook/a/b.url=1", "exporters.webhook/a/b: 'a/b' is no name"),
        ("exporters.type/name.otlp=1", "exporters.type/name: there are no several exporters of type 'type'"),
        ("exporters.otlp_file/more.compression=none", "missing required field `path`"),
        ("service.pipelines.logs.exporters=[aggregator, otlp_file/x]", "'otlp_file/x' is not defined here"),
        ("service.pipelines.snapshots.exporters=[webhook/unused]", "exporters.webhook/unused.url: "),
        ("exporters.prometheus/teams.endpoint=0.0.0.0:1", "exporters.prometheus/teams.endpoint: 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_reported_with_its_whole_name(written: Path, setting: str, stated: str) -> None:
    """A wrong name, a wrong key, a wrong value, one that is nowhere defined."""
    with pytest.raises(ConfigError) as refused:
        load(written, [setting])
    assert stated in str(refused.value)


def test_two_that_would_write_to_one_place_are_refused(written: Path, tmp_path: Path) -> None:
    """Before one damages the files of the other."""
    with pytest.raises(ConfigError, match=r"exporters\.otlp_file/copy\.path: otlp_file writes to"):
        load(written, [f"exporters.otlp_file.path={tmp_path / 'copy'}"])


def test_the_schema_of_the_configuration_knows_them(written: Path) -> None:
    """As patterns of keys, so that an editor accepts what the collector does."""
    stated = json.loads(CliRunner().invoke(config_command, ["schema"]).output)
    patterns = stated["$defs"]["Exporters"]["patternProperties"]
    names = [name for name in yaml.safe_load(TEXT)["exporters"] if "/" in name]
    for name in names:
        assert sum(re.search(pattern, name) is not None for pattern in patterns) == 1, name
    assert not any(re.search(pattern, "otlp_file2/second") for pattern in patterns)
    assert {one["$ref"].rpartition("/")[2] for one in patterns.values()} <= stated["$defs"].keys()
    listed = CliRunner().invoke(config_command, ["components"]).output
    assert yaml.safe_load(listed)["exporters"]["type/name"]["settings"]["webhook"]


def test_two_recordings_have_a_place_and_counters_of_their_own(tmp_path: Path) -> None:
    """Both hold every line, and each is on the collector's page."""
    names = ("otlp_file", "otlp_file/copy")
    more = (
        f"exporters.otlp_file/copy.path={tmp_path / 'copy'}",
        f"service.pipelines.logs.exporters=[aggregator, {', '.join(names)}]",
    )
    with running(tmp_path, *more) as service:
        for number in range(1, 21):
            event = LogLine(at=time.time_ns(), severity=Severity.WARNING, message=f"line {number}")
            give(service, reported("run", [event], number))
        tally = service.context.tally
        for name in names:
            assert eventually(
                lambda one=name: tally.get("otelcol_exporter_sent_log_records", exporter=one) == 20
            )
        page = http(f"{service.endpoints.telemetry}/metrics").body.decode()
        for name in names:
            assert f'otelcol_exporter_queue_size{{exporter="{name}"}}' in page
            assert f'overwatch_recording_budget_bytes{{exporter="{name}"}}' in page
    assert (tmp_path / "journal" / "otlp_file%2Fcopy.cursor").exists()
    for folder in ("otlp", "copy"):
        assert Recording(tmp_path / folder).bad_batches == 0
        assert (tmp_path / folder / "logs.jsonl").read_text().count('"line ') == 20


def test_two_webhooks_send_the_same_and_one_that_refuses_is_named(tmp_path: Path) -> None:
    """The other's messages arrive, in a shape of their own."""
    with receiver() as good, receiver() as refusing:
        refusing.statuses = [403]
        more = (
            "service.pipelines.snapshots.exporters=[webhook/chat, webhook/pager]",
            f"exporters.webhook/pager.url={refusing.url}",
            f"exporters.webhook/chat={{url: '{good.url}', shape: slack}}",
        )
        with running(tmp_path, *more) as service:
            at = time.time_ns()
            give(
                service,
                reported("crashing", [fakes.envs(at, range(4), 1, reward=[1.0] * 4), fakes.crashed(at, 2)]),
            )
            good.wait(1)
            refusing.wait(1)
            eventually(lambda: "webhook/pager" in service.context.health.degraded)
            assert "webhook/chat" not in service.context.health.degraded
            tally = service.context.tally
            assert eventually(lambda: tally.get("overwatch_exporter_sent_notices", exporter="webhook/chat"))
            assert eventually(lambda: tally.get("overwatch_exporter_lost_notices", exporter="webhook/pager"))
    assert "text" in good.bodies[0]


def test_a_second_page_of_metrics_has_an_address_of_its_own(tmp_path: Path) -> None:
    """With limits of its own, announced under its own name."""
    more = (
        "service.pipelines.snapshots.exporters=[prometheus, prometheus/teams, snapshots/copy]",
        "exporters.prometheus/teams={endpoint: '127.0.0.1:0', per_env: 16}",
        f"exporters.snapshots/copy.path={tmp_path / 'copy.jsonl'}",
    )
    with running(tmp_path, *more) as service:
        give(service, reported("two", [fakes.envs(time.time_ns(), range(4), 1, reward=[1.0] * 4)]))
        urls = [str(service.context.urls.get(name)) for name in ("metrics", "metrics/teams")]
        eventually(lambda: b'rl_run_id="two"' in http(f"{urls[0]}/metrics").body)
        pages = [http(f"{url}/metrics").body for url in urls]
        assert [b'overwatch_env_id="' in page for page in pages] == [False, True]
        eventually((tmp_path / "copy.jsonl").exists)

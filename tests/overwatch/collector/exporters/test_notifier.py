"""A collector with a webhook sends a crash that an OTLP client reported."""

import re
import time
from pathlib import Path

import pytest

from overwatch.collector.service import Service
from overwatch.config import load
from tests import fakes
from tests.overwatch.collector import running as collecting
from tests.overwatch.collector.exporters.test_webhook import receiver


def test_a_crash_is_sent_to_the_webhook(tmp_path: Path) -> None:
    """From the OTLP door to the message, in Slack's shape."""
    with receiver() as received:
        sets = (
            "service.pipelines.snapshots.exporters=[prometheus,webhook]",
            f"exporters.webhook.url={received.url}",
            "exporters.webhook.shape=slack",
        )
        with collecting.running(tmp_path, *sets) as service:
            _crash(service)
            received.wait(1)
    text = str(received.bodies[0]["text"])
    assert "run `crashing`" in text
    assert "env" in text


def test_what_became_of_messages_is_on_the_collectors_page(tmp_path: Path) -> None:
    """From 0 on, for each webhook, beside everything else that is counted there."""
    with receiver() as received, receiver() as refusing:
        refusing.statuses = [403]
        sets = (
            "service.pipelines.snapshots.exporters=[prometheus, snapshots, webhook, webhook/pager]",
            f"exporters.webhook.url={received.url}",
            f"exporters.webhook/pager.url={refusing.url}",
        )
        with collecting.running(tmp_path, *sets) as service:
            page = f"{service.endpoints.telemetry}/metrics"
            for name in ("webhook", "webhook/pager"):
                for word in ("sent", "lost"):
                    line = f'overwatch_exporter_{word}_notices_total{{exporter="{name}"}} 0.0'
                    assert line in collecting.http(page).body.decode().splitlines()
            _crash(service)
            received.wait(1)
            refusing.wait(1)

            def counted(word: str, name: str) -> bool:
                found = collecting.http(page).body.decode().splitlines()
                return f'overwatch_exporter_{word}_notices_total{{exporter="{name}"}} 0.0' not in found

            assert collecting.eventually(lambda: counted("sent", "webhook"))
            assert collecting.eventually(lambda: counted("lost", "webhook/pager"))
            assert not counted("lost", "webhook")
            assert not counted("sent", "webhook/pager")


def test_a_crash_is_sent_to_two_commands(tmp_path: Path) -> None:
    """Beside one another, each with series and a note of its own."""
    got = {name: tmp_path / name.replace("/", "-") for name in ("command", "command/page")}
    sets = (
        "service.pipelines.snapshots.exporters=[command, command/page]",
        *(f"exporters.{name}.argv=[sh, -c, 'cat >> {place}']" for name, place in got.items()),
    )
    with collecting.running(tmp_path / "data", *sets) as service:
        _crash(service)
        tally = service.context.tally
        for name in got:
            assert collecting.eventually(
                lambda n=name: tally.get("overwatch_exporter_sent_notices", exporter=n)
            )
    assert all(b'"run_id":"crashing"' in place.read_bytes() for place in got.values())


@pytest.mark.parametrize(
    ("sets", "stated"),
    [
        (("command.timeout_s=5",), "exporters.command.argv: "),
        (("command={argv: [x], timeout_s: 100}",), "timeout_s 100"),
        (("command/page.argv=[]",), "exporters.command/page.argv: "),
    ],
)
def test_what_a_notifier_lacks_is_named_before_it_starts(sets: tuple[str, ...], stated: str) -> None:
    """By path, with an example; unlisted ones may be unfinished."""
    name = "command/page" if "/" in sets[0] else sets[0].partition(".")[0].partition("=")[0]
    given = [f"exporters.{one}" for one in sets]
    with pytest.raises(ValueError, match=re.escape(stated)):
        load(None, [*given, f"service.pipelines.snapshots.exporters=[{name}]"])


def test_a_crash_that_stands_is_sent_once_in_two_lives(tmp_path: Path) -> None:
    """The next life of the same folder knows what was sent; what is new in it is sent."""
    with receiver() as received:
        sets = (
            "service.pipelines.snapshots.exporters=[webhook]",
            f"exporters.webhook.url={received.url}",
        )
        with collecting.running(tmp_path, *sets) as service:
            _crash(service)
            received.wait(1)
            tally = service.context.tally
            assert collecting.eventually(
                lambda: (
                    tally.get("overwatch_exporter_sent_notices", exporter="webhook") == len(received.bodies)
                )
            )
        first = len(received.bodies)
        with collecting.running(tmp_path, *sets) as service:
            _crash(service, env=3, run="another")
            received.wait(first + 1)
    stated = [(body["status"], body["run_id"], body["finding"]["id"]) for body in received.bodies]  # type: ignore[index]
    assert ("started", "another", "env-crashed:env:3") in stated[first:]
    assert len(stated) == len(set(stated))


def _crash(service: Service, env: int = 2, run: str = "crashing") -> None:
    at = time.time_ns()
    events = [fakes.envs(at, range(4), 1, reward=[1.0] * 4), fakes.crashed(at, env)]
    url = f"{service.context.urls.get('otlp_http')}/v1/logs"
    body = collecting.reported(run, events)
    assert collecting.http(url, body, content_type="application/x-protobuf").status == 200


def test_a_webhook_without_an_address_is_a_clear_error() -> None:
    """Named with the key to set; the address is never shown."""
    with pytest.raises(ValueError, match=r"exporters\.webhook\.url"):
        load(None, ["service.pipelines.snapshots.exporters=[webhook]"])
    with pytest.raises(ValueError, match="no http") as refused:
        load(None, ["exporters.webhook.url=hush://hush"])
    assert "hush" not in str(refused.value)

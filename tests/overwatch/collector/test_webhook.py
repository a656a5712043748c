"""A collector with a webhook tells a crash that an OTLP client reported."""

import time
from pathlib import Path

import pytest

from overwatch.collector.service import Service
from overwatch.config import load
from tests import fakes
from tests.overwatch.collector import running as collecting
from tests.overwatch.serve.test_webhook import receiver


def test_a_crash_is_told_to_the_webhook(tmp_path: Path) -> None:
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


def test_a_crash_that_stands_is_told_once_in_two_lives(tmp_path: Path) -> None:
    """The next life of the same folder knows what was told; what is new in it is told."""
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
    said = [(body["status"], body["run_id"], body["finding"]["id"]) for body in received.bodies]  # type: ignore[index]
    assert ("started", "another", "env-crashed:env:3") in said[first:]
    assert len(said) == len(set(said))


def _crash(service: Service, env: int = 2, run: str = "crashing") -> None:
    at = time.time_ns()
    events = [fakes.envs(at, range(4), 1, reward=[1.0] * 4), fakes.crashed(at, env)]
    url = f"{service.context.board.url('otlp_http')}/v1/logs"
    body = collecting.told(run, events)
    assert collecting.http(url, body, content_type="application/x-protobuf").status == 200


def test_a_webhook_without_an_address_is_a_clear_error() -> None:
    """Named with the key to set; the address is never shown."""
    with pytest.raises(ValueError, match=r"exporters\.webhook\.url"):
        load(None, ["service.pipelines.snapshots.exporters=[webhook]"])
    with pytest.raises(ValueError, match="no http") as refused:
        load(None, ["exporters.webhook.url=hush://hush"])
    assert "hush" not in str(refused.value)

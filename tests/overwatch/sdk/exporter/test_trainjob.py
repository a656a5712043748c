"""Progress of a run at the server of a TrainJob: a real HTTPS server, whose authority no system knows."""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overwatch.catalog import policy
from overwatch.catalog.run import UPDATES
from overwatch.events import RunFinished, RunStarted
from overwatch.sdk.exporter import trainjob
from overwatch.sdk.exporter.trainjob import TrainJob, status_of, trainjob_of
from overwatch.sdk.trainer_env import run_env
from tests.e2e.collecting import until
from tests.fakes import START_NS
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.overwatch.sdk.sink import http_sink
from tests.ports import free_port

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/cartpole/status"
STARTED = RunStarted(at=START_NS, updates=40)
SECOND = 10**9
TRAINER = """\
import overwatch.sdk
run = overwatch.sdk.start(task="bandit", updates=40, sample=False)
for update in range(1, {updates} + 1):
    run.update(update=update, return_=update / 8, policy_loss=float("nan"))
{end}
"""


class Controller:
    """What of Kubeflow Trainer's status server a pod meets."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[tuple[str, str | None, dict[str, Any]]] = []
        """Path, authorization and body of each request."""
        self.answers: list[int] = []
        """Statuses of the next requests; then 200."""
        self.folder = folder
        authority(folder, "ca")
        signed(folder, "server", extension="subjectAltName=DNS:localhost")
        (folder / "token").write_text("first\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self._server = http.server.ThreadingHTTPServer(("localhost", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def env(self) -> dict[str, str]:
        """What the controller puts into a pod."""
        return {
            trainjob.URL: f"https://localhost:{self._server.server_address[1]}{PATH}",
            trainjob.AUTHORITY: str(self.folder / "ca.pem"),
            trainjob.TOKEN: str(self.folder / "token"),
        }

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """What it was sent, in order."""
        return [body["trainerStatus"] for _, _, body in self.seen]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        controller = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                controller.seen.append((self.path, self.headers["authorization"], body))
                self.send_response(controller.answers.pop(0) if controller.answers else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """A server with an authority of its own."""
    folder = tmp_path / "pki"
    folder.mkdir()
    made = Controller(folder)
    yield made
    made.close()


def test_progress_is_that_of_the_planned_updates() -> None:
    """Ten of forty updates took twenty seconds, so the thirty others take sixty."""
    values = {UPDATES.name: 10.0, policy.RETURN.name: 12.3456789, policy.KL.name: float("nan"), "mine": 1.0}

    assert status_of(STARTED, 10, values, START_NS + 20 * SECOND) == {
        "progressPercentage": 25,
        "estimatedRemainingSeconds": 60,
        "metrics": [{"name": "updates", "value": "10"}, {"name": "return", "value": "12.3457"}],
        "lastUpdatedTime": "2027-01-15T08:00:20Z",
    }


@pytest.mark.parametrize(
    ("started", "update"),
    [(RunStarted(at=START_NS), 10), (STARTED, None)],
    ids=["without a plan", "before the first update"],
)
def test_what_is_not_known_is_left_out(started: RunStarted, update: int | None) -> None:
    """A run without an end in sight has neither a percentage nor a rest."""
    assert set(status_of(started, update, {}, START_NS + SECOND)) == {"metrics", "lastUpdatedTime"}


def test_updates_of_a_life_before_took_none_of_this_ones_time() -> None:
    """Of forty updates thirty were there at the start; five took ten seconds, so five more take ten."""
    resumed = RunStarted(at=START_NS, updates=40, resumed=30)
    found = status_of(resumed, 35, {}, START_NS + 10 * SECOND)

    assert (found["progressPercentage"], found["estimatedRemainingSeconds"]) == (87, 10)
    assert "estimatedRemainingSeconds" not in status_of(resumed, 30, {}, START_NS + 10 * SECOND)


@pytest.mark.parametrize(
    ("outcome", "percentage", "rest"),
    [("completed", 100, 0), ("failed", 25, None), ("interrupted", 25, None)],
)
def test_only_a_completed_run_is_whole(outcome: str, percentage: int, rest: int | None) -> None:
    """One that ends early by itself is; one that fails stays where it was, with no rest to wait for."""
    found = status_of(STARTED, 10, {}, START_NS + SECOND, RunFinished(at=START_NS, outcome=outcome))

    assert (found["progressPercentage"], found.get("estimatedRemainingSeconds")) == (percentage, rest)


@needs_openssl
@pytest.mark.parametrize(("end", "percentage"), [("run.close(60)", 100), ("raise ValueError", 50)])
def test_a_trainer_in_a_pod_reports_to_its_trainjob(
    controller: Controller, end: str, percentage: int
) -> None:
    """By the exporter process alone: the program has no line for it."""
    env = {
        **os.environ,
        **controller.env,
        "OVERWATCH_SPOOL_DIR": str(controller.folder / "spool"),
        "OVERWATCH_EXPORTER": "own",
    }
    program = TRAINER.format(updates=20, end=end)
    command = [sys.executable, "-c", program]
    with http_sink() as sink:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = sink.endpoint
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        until(lambda: controller.seen, "the last report of an exporter that outlives its trainer", 60)

    assert ran.returncode == (0 if percentage == 100 else 1), ran.stderr
    assert "TrainJob" not in ran.stderr
    path, token, body = controller.seen[-1]
    # Four hundred modules, which other workers need not import.
    from kubeflow_trainer_api.models import TrainerV1alpha1UpdateTrainJobStatusRequest as StatusRequest

    taken = StatusRequest.from_json(json.dumps(body)).to_dict()
    assert {**taken["trainerStatus"], "lastUpdatedTime": ...} == {
        **body["trainerStatus"],
        "lastUpdatedTime": ...,
    }
    assert (path, token) == (PATH, "Bearer first")
    assert body["trainerStatus"]["progressPercentage"] == percentage
    metrics = {one["name"]: one["value"] for one in body["trainerStatus"]["metrics"]}
    assert metrics == {"updates": "20", "steps": "0", "episodes": "0", "return": "2.5"}


@needs_openssl
def test_numbers_are_conflated_and_the_token_is_read_anew(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand reports are few requests, the last of them the newest; kubelets replace the token."""
    monkeypatch.setattr(trainjob, "INTERVAL_S", 0.05)
    job = TrainJob(controller.env, STARTED)
    job.start()
    job.report(1, {}, None)
    until(lambda: controller.seen, "the first report", 20)
    (controller.folder / "token").write_text("second\n")
    for update in range(2, 41):
        for _ in range(25):
            job.report(update, {}, None)
    job.stop()

    assert controller.statuses[-1]["progressPercentage"] == 100
    assert {token for _, token, _ in controller.seen} == {"Bearer first", "Bearer second"}
    assert len(controller.seen) < 100


@needs_openssl
def test_an_error_is_logged_once_and_tried_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller that restarts or refuses costs a line; the newest numbers arrive once it answers."""
    monkeypatch.setattr(trainjob, "INTERVAL_S", 0.02)
    controller.answers[:] = [500, 403]
    job = TrainJob(controller.env, STARTED)
    job.start()
    for update in (10, 20, 30):
        job.report(update, {}, None)
        until(lambda wanted=update // 10: len(controller.seen) == wanted, "another report", 20)
    job.stop()

    assert [one["progressPercentage"] for one in controller.statuses] == [25, 50, 75]
    assert [record.getMessage() for record in caplog.records] == [
        "progress cannot be sent to the TrainJob: HTTP 500; tried again later"
    ]


@needs_openssl
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({trainjob.AUTHORITY: ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({trainjob.TOKEN: "/none"}, "no token in /none"),
        ({trainjob.URL: f"https://localhost:{free_port()}{PATH}"}, "ConnectionRefusedError"),
    ],
    ids=["an authority that is not known", "no token", "nobody there"],
)
def test_what_cannot_be_sent_is_given_up_with_its_reason(
    controller: Controller, caplog: pytest.LogCaptureFixture, changed: dict[str, str], reason: str
) -> None:
    """Nothing is raised, and no token goes to a server that is not the controller."""
    job = TrainJob({**controller.env, **changed}, STARTED)
    job.start()
    job.report(1, {}, None)
    job.stop()

    assert not controller.seen
    assert reason in caplog.text


def test_a_token_is_never_sent_in_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    """An address without TLS is refused with its name."""
    assert trainjob_of({trainjob.URL: "http://localhost/status"}, STARTED) is None
    assert "KUBEFLOW_TRAINER_SERVER_URL='http://localhost/status' is no https:// URL" in caplog.text


def test_outside_of_a_trainjob_there_is_nothing_to_report_to() -> None:
    """And the variables reach the exporter of a trainer that has them."""
    names = dict.fromkeys((trainjob.URL, trainjob.AUTHORITY, trainjob.TOKEN), "x")

    assert trainjob_of({}, STARTED) is None
    assert run_env(names) == names

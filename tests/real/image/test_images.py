"""The images are built as the docs state, and the chart's collector runs in one as a pod.

Figures are printed: sizes, seconds to build, to be ready, to be back after a kill. Run with `-m long -s`.
"""

import http.client
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.collecting import until
from tests.e2e.killing import PER_REQUEST, Sender, reported
from tests.overwatch.collector.running import Reply
from tests.overwatch.collector.running import http as wanted
from tests.real.helm.charts import CHART
from tests.real.image.pod import Pod
from tests.real.image.podman import Podman, absent

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(absent() is not None, reason=str(absent())),
]
READ_ONLY = ("run", "--rm", "--network", "none", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp")
FORBIDDEN = ("gcc", "cc", "g++", "make", "pip", "pip3")
KILLS = 5


@pytest.fixture
def pod(podman: Podman, tower: str, tmp_path: Path) -> Iterator[Pod]:
    """The chart's collector, played and ready."""
    made = Pod(podman, tower, tmp_path)
    began = time.monotonic()
    made.play()
    try:
        _ready(made)
        print(f"\nplayed and ready in {time.monotonic() - began:.1f} s")
        yield made
    finally:
        made.remove()


def _ready(pod: Pod) -> None:
    def healthy() -> bool:
        reply = _get(pod.endpoints.health or "")
        return reply is not None and reply.status == 200

    until(healthy, f"the pod to be ready:\n{pod.log}", 90)


def _get(url: str, **headers: str) -> Reply | None:
    try:
        return wanted(url, **headers)
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.parametrize(("image", "shell"), [("tower", "overwatch"), ("rl", "overwatch-rl")])
def test_an_image_has_its_command_and_nothing_to_build_with(
    image: str, shell: str, podman: Podman, request: pytest.FixtureRequest
) -> None:
    """It runs as a user of its own; neither a compiler nor an installer is there."""
    name = request.getfixturevalue(image)
    look = f"id -u; for one in {' '.join(FORBIDDEN)}; do command -v $one; done; {shell} --help"

    stated = podman.call(*READ_ONLY, "--entrypoint", "sh", name, "-c", look)

    assert stated.splitlines()[0] == "10001"
    assert [line for line in stated.splitlines()[1:] if line.startswith("/")] == []
    assert "Usage:" in stated
    assert podman.tried(*READ_ONLY, "--entrypoint", "python", name, "-m", "pip").returncode


def test_the_image_of_training_trains(rl: str, podman: Podman) -> None:
    """On a root file system that cannot be written, without a network."""
    stated = podman.call(*READ_ONLY, rl, "train", "--updates", "2", "--envs", "4", timeout=300)

    assert "Traceback" not in stated


def test_a_container_reports_whether_it_is_healthy(tower: str, podman: Podman) -> None:
    """By the image's own health check."""
    ran = ("run", "-d", "--read-only", "--network", "none", "--tmpfs", "/tmp")
    run = ("--env", "XDG_RUNTIME_DIR=/tmp")
    container = podman.call(*ran, *run, tower)
    try:
        healthy = lambda: podman.tried("healthcheck", "run", container).returncode == 0  # noqa: E731 one look
        until(healthy, "health", 60)
    finally:
        podman.call("rm", "--force", "--volumes", container)


def test_the_pod_takes_telemetry_and_shows_it(pod: Pod) -> None:
    """What `helm test` sends is in /metrics; nobody gets in without a token."""
    ends = pod.endpoints
    send, scrape = ends.otlp_http or "", ends.metrics or ""
    env = {
        **os.environ, "SEND_URL": send, "SCRAPE_URL": scrape.removesuffix("/metrics"),
        "INGEST_TOKEN": pod.token("ingest"), "READ_TOKEN": pod.token("read"),
    }  # fmt: skip
    command = [sys.executable, str(CHART / "files/tests/roundtrip.py")]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=90)

    assert found.returncode == 0, found.stderr
    assert wanted(scrape).status == 401
    assert wanted(f"{send}/v1/logs", b"{}", authorization=f"Bearer {pod.token('read')}").status in (401, 403)


def test_the_pod_is_nobody_and_can_write_to_its_volumes_only(pod: Pod) -> None:
    """As the chart's security context asks."""
    known = pod.inspect()

    assert pod.execute("id", "-u").stdout.strip() == "10001"
    assert known["HostConfig"]["ReadonlyRootfs"] is True
    assert known["EffectiveCaps"] in (None, [])
    assert "no-new-privileges" in known["HostConfig"]["SecurityOpt"]
    assert pod.execute("touch", "/opt/tower/mine").returncode
    assert pod.execute("touch", "/etc/overwatch/tokens/mine").returncode
    assert pod.execute("touch", "/var/lib/overwatch/mine", "/tmp/mine").returncode == 0


def test_what_is_acknowledged_outlives_kills_and_the_pod(pod: Pod) -> None:
    """SIGKILL under load, over and over, then another pod on the claim: no line is missing or altered."""
    headers = {"Authorization": f"Bearer {pod.token('ingest')}"}
    senders = [Sender(f"run-{number}", pod, **headers) for number in range(3)]
    for sender in senders:
        sender.start()
    back: list[float] = []
    try:
        for _ in range(KILLS):
            threading.Event().wait(1.0)
            began = time.monotonic()
            pod.kill()
            _ready(pod)
            back.append(time.monotonic() - began)
        pod.down()
        pod.play()
        _ready(pod)
    finally:
        for sender in senders:
            sender.stop()
    lines = {sender.run_id: sender.acknowledged for sender in senders}
    _shown(pod, lines)
    pod.stop()
    assert "everything that was accepted is written" in pod.log

    copies = Counter(reported(next(pod.data.rglob("index.jsonl")).parent))
    for sender in senders:
        assert {n for run, n in copies if run == sender.run_id} == set(range(1, sender.acknowledged + 1))
        for first, attempts in sender.attempts.items():
            assert all(1 <= copies[sender.run_id, n] <= attempts for n in range(first, first + PER_REQUEST))
    print(f"{KILLS} kills and another pod: {sum(lines.values())} acknowledged lines, none missing or altered")
    print(f"ready after a kill: {min(back):.1f} to {max(back):.1f} s")


def _shown(pod: Pod, lines: dict[str, int]) -> None:
    """Wait until the collector shows every run."""
    scrape, headers = pod.endpoints.metrics or "", {"authorization": f"Bearer {pod.token('read')}"}

    def shown_all() -> bool:
        reply = _get(scrape, **headers)
        return reply is not None and all(run.encode() in reply.body for run in lines)

    until(shown_all, "the runs to be shown", 120)

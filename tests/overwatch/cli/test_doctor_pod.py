"""`overwatch doctor` in a container: limits, the pod, names; what is wrong is named, and comes with a fix."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.cli.doctor_machine import State, Verdict
from overwatch.cli.doctor_pod import LOOKUP_S, limits, lookups, pod, synced
from overwatch.collector.limits import LimitsConfig
from tests.overwatch.test_cgroup import v2

MIB = 1 << 20
IN_POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "K8S_POD_NAME": "tower-0",
    "K8S_NAMESPACE_NAME": "rl",
    "K8S_NODE_NAME": "node-7",
}


def wrong(verdicts: Iterator[Verdict]) -> list[Verdict]:
    """Those that are not well; each has a fix."""
    found = [one for one in verdicts if one.state is not State.OK]
    assert all(one.fix for one in found)
    return found


def group(memory_mib: int, used_mib: int, cpu: str = "200000 100000", kills: int = 0) -> dict[str, object]:
    """Files of a pod's control group."""
    return {
        "memory.max": memory_mib * MIB, "memory.current": used_mib * MIB, "memory.stat": "anon 5",
        "memory.events": f"oom 0\noom_kill {kills}", "cpu.max": cpu,
    }  # fmt: skip


def test_a_pod_with_room_is_well(tmp_path: Path) -> None:
    """Its limits are named."""
    found = list(limits(LimitsConfig(), v2(tmp_path, group(2048, 300)), (65536, 1 << 20)))
    assert [one.state for one in found] == [State.OK] * 3
    assert "2,048 MiB are the control group's limit, 300 are used" in found[0].found
    assert "2 cores" in found[1].found
    assert "1,048,576 are the most" in found[2].found


@pytest.mark.parametrize(
    ("memory_mib", "used_mib", "cpu", "kills", "files", "words"),
    [
        (256, 20, "200000 100000", 0, 65536, "256 MiB are the control group's limit"),
        (2048, 2000, "200000 100000", 0, 65536, "of which 2,000 are used"),
        (2048, 20, "20000 100000", 0, 65536, "0.2 cores are the most"),
        (2048, 20, "200000 100000", 3, 65536, "killed 3 processes"),
        (2048, 20, "200000 100000", 0, 1024, "open files: 1024 are the most"),
    ],
)
def test_a_limit_that_is_too_small_is_named(  # noqa: PLR0917 a row of the table
    tmp_path: Path, memory_mib: int, used_mib: int, cpu: str, kills: int, files: int, words: str
) -> None:
    """One warning, for that alone."""
    held = v2(tmp_path, group(memory_mib, used_mib, cpu, kills))
    (found,) = wrong(limits(LimitsConfig(), held, (1024, files)))
    assert found.state is State.WARNING
    assert words in found.found


def test_a_memory_limit_above_the_groups_is_a_failure(tmp_path: Path) -> None:
    """The kernel would end the collector before it refuses."""
    held = v2(tmp_path, group(1024, 20))
    (found,) = wrong(limits(LimitsConfig(limit_mib=1024), held, (65536, 65536)))
    assert found.state is State.FAILURE
    assert "limit_mib is 1024" in found.found


def test_what_a_pod_lacks_and_has_too_much_is_named(tmp_path: Path) -> None:
    """Its names, and a token of the cluster's API."""
    assert wrong(pod({**os.environ, **IN_POD}, tmp_path)) == []
    token = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token"
    token.parent.mkdir(parents=True)
    token.write_text("x")
    names, account = wrong(pod({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "K8S_POD_NAME": "a"}, tmp_path))
    assert "K8S_NAMESPACE_NAME, K8S_NODE_NAME" in names.found
    assert "automountServiceAccountToken: false" in account.fix
    assert any("no pod of Kubernetes" in one.found for one in pod({}, tmp_path))


def test_a_name_without_an_address_is_named_with_what_names_it() -> None:
    """Each host once; one that is not answered in time does not hold up the others."""
    asked: list[str] = []
    over = threading.Event()

    def resolve(host: str) -> None:
        asked.append(host)
        if host == "slow":
            over.wait(60)
        if host == "gone.rl.svc":
            raise socket.gaierror(-2, "Name or service not known")

    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://tower.rl.svc:4318",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://tower.rl.svc:4318/v1/logs",
        "OVERWATCH_ENDPOINT": "http://gone.rl.svc:4318",
    }
    try:
        found = list(lookups("slow:4317", env, resolve, 0.2))
    finally:
        over.set()
    assert sorted(asked) == ["gone.rl.svc", "slow", "tower.rl.svc"]
    shown = {one.found.partition(" ")[0]: one for one in found}
    assert shown["tower.rl.svc"].state is State.OK
    assert "OVERWATCH_ENDPOINT): [Errno -2] Name or service not known" in shown["gone.rl.svc"].found
    assert "no answer within 0.2 s" in shown["slow"].found
    assert LOOKUP_S > 0.2


def test_real_names_are_looked_up() -> None:
    """By the system's resolver; a name of the domain `invalid` never has an address."""
    found = list(lookups("http://localhost:4318", {"OVERWATCH_ENDPOINT": "http://x.invalid"}))
    assert {one.found.partition(" ")[0]: one.state for one in found} == {
        "x.invalid": State.FAILURE,
        "localhost": State.OK,
    }
    assert [one.found for one in lookups(None, {})] == ["no other host is named"]


def test_a_write_reaches_the_disk_and_leaves_nothing(tmp_path: Path) -> None:
    """Also where the folder is not there yet; a folder that cannot be written to is a failure."""
    (found,) = synced(tmp_path / "later/data")
    assert found.state is State.OK
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    (bad,) = wrong(synced(tmp_path / "file"))
    assert "fsGroup" in bad.fix


def test_a_read_only_root_without_volumes_is_named(tmp_path: Path) -> None:
    """In namespaces of its own, everything mounted read-only: what must be mounted is in the fixes."""
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no user and mount namespaces here")
    code = (
        "import subprocess, sys, pathlib\n"
        "mounts = [line.split()[4] for line in open('/proc/self/mountinfo')]\n"
        "for at in sorted(set(mounts)):\n"
        "    if not at.startswith(('/proc', '/sys')):\n"
        "        subprocess.run(['mount', '-o', 'remount,bind,ro', at], capture_output=True)\n"
        "from overwatch.cli import main\n"
        "sys.argv = ['overwatch', 'doctor', '--only', 'pod', '--only', 'disk']\n"
        "main()\n"
    )
    env = {**os.environ, **IN_POD, "OVERWATCH_DATA_DIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [unshare, "-rm", sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    for words in (
        "the root is read-only", "mount an emptyDir at /tmp", "set XDG_RUNTIME_DIR", "fsGroup",
        "K8S_NODE_NAME=node-7",
    ):  # fmt: skip
        assert words in done.stdout, done.stdout

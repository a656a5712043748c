"""The chart's collector as a pod that podman plays: the kept manifests, changed where podman is no cluster.

What is changed: a StatefulSet becomes its first pod and its claim, as the controller of StatefulSets would
make them; ports are published on loopback, at free ones; the secret is given its tokens, and states it is
not optional, since podman 4.3 falls over where that is left out. Probes do not run: podman wants systemd.
"""

import base64
import copy
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from overwatch.discovery import Endpoints
from tests.e2e.collecting import until
from tests.ports import free_port
from tests.real.helm.charts import CHART, objects, rendered
from tests.real.image.podman import Podman

NAME: Final = "tower-overwatch"
ROLES: Final = ("ingest", "read", "control")


class Pod:
    """A collector that is played, with a claim that outlives it."""

    def __init__(self, podman: Podman, image: str, folder: Path) -> None:
        self.name = f"{NAME}-{os.getpid()}"
        self.claim = f"data-{self.name}-0"
        self.ports = {name: free_port() for name in _ports(_stateful())}
        self._podman, self._file = podman, folder / "pod.yaml"
        self._objects = self._made(image)
        self._claimed = self._playing = False

    @property
    def container(self) -> str:
        """What podman calls the container."""
        return f"{self.name}-0-collector"

    @property
    def endpoints(self) -> Endpoints:
        """Where it is reached, running or not."""
        url = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        return Endpoints(
            pid=0, otlp_http=url["otlp-http"], otlp_grpc=url["otlp-grpc"], health=url["health"],
            view=url["view"].replace("http", "ws"), metrics=f"{url['metrics']}/metrics",
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The collector's process, as this machine numbers it; 0 while it does not run."""
        return int(self._podman.call("inspect", self.container, "--format", "{{.State.Pid}}"))

    @property
    def data(self) -> Path:
        """Where the claim's files lie."""
        found = self._podman.call("volume", "inspect", self.claim, "--format", "{{.Mountpoint}}")
        return Path(found)

    def play(self) -> None:
        """Make the pod, and the claim if it is not there."""
        left_out = ("PersistentVolumeClaim",) if self._claimed else ()
        wanted = [one for one in self._objects if one["kind"] not in left_out]
        self._file.write_text(yaml.safe_dump_all(wanted))
        self._podman.call("kube", "play", str(self._file))
        self._claimed = self._playing = True

    def down(self) -> None:
        """Delete the pod and all that goes with it, which podman does with SIGKILL; the claim stays."""
        if not self._playing:
            return
        self._playing = False
        self._podman.call("kube", "down", str(self._file))
        self._podman.tried("secret", "rm", f"{self.name}-tokens")
        volumes = self._podman.call("volume", "ls", "--quiet").split()
        for name in (self.name, f"{self.name}-tokens", f"{self.name}-run", f"{self.name}-tmp"):
            if name in volumes:
                self._podman.call("volume", "rm", "--force", name)

    def kill(self) -> None:
        """SIGKILL to the collector, from outside; podman begins another one, as the pod states."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.pid not in (0, pid), "another collector", 60)

    def stop(self) -> None:
        """SIGTERM, and the time that the chart gives."""
        grace = str(_stateful()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
        self._podman.call("stop", "--time", grace, self.container)

    def remove(self) -> None:
        """Delete everything."""
        self.down()
        self._podman.call("volume", "rm", "--force", self.claim)

    def token(self, role: str) -> str:
        """A role's token as the collector reads it; podman 4.3 leaves a mounted secret in base64."""
        ran = self.execute("cat", f"/etc/overwatch/tokens/{role}")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run something inside of the container."""
        return self._podman.tried("exec", self.container, *words)

    def inspect(self) -> dict[str, Any]:
        """All that podman knows of the container."""
        (found,) = json.loads(self._podman.call("inspect", self.container))
        return dict(found)

    @property
    def log(self) -> str:
        """What the collector logged."""
        return self._podman.tried("logs", self.container).stderr

    def _made(self, image: str) -> list[dict[str, Any]]:
        found = [one for one in _kept() if one["metadata"]["name"] in (NAME, f"{NAME}-tokens")]
        (config,) = (one for one in found if one["kind"] == "ConfigMap")
        (secret,) = (one for one in found if one["kind"] == "Secret")
        tokens = {role: base64.b64encode(f"token-of-{role}".encode()).decode() for role in ROLES}
        assert tokens.keys() == secret["data"].keys()
        (template,) = _stateful()["spec"]["volumeClaimTemplates"]
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"]}
        named = {"name": self.name}
        return [
            {**config, "metadata": named},
            {**secret, "metadata": {"name": f"{self.name}-tokens"}, "data": tokens},
            {**claim, "metadata": {"name": self.claim}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{self.name}-0", "labels": named},
             "spec": self._spec(image)},
        ]  # fmt: skip

    def _spec(self, image: str) -> dict[str, Any]:
        spec: dict[str, Any] = copy.deepcopy(_stateful()["spec"]["template"]["spec"])
        (container,) = spec["containers"]
        container |= {"image": image, "imagePullPolicy": "Never"}
        for port in container["ports"]:
            port |= {"hostIP": "127.0.0.1", "hostPort": self.ports[port["name"]]}
        for mount in container["volumeMounts"]:
            mount["name"] = f"{self.name}-{mount['name']}"
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": self.claim}})
        for volume in spec["volumes"]:
            volume["name"] = f"{self.name}-{volume['name']}"
            if "configMap" in volume:
                volume["configMap"]["name"] = self.name
            if "secret" in volume:
                volume["secret"] |= {"secretName": f"{self.name}-tokens", "optional": False}
        return spec


def _kept() -> list[dict[str, Any]]:
    return objects(rendered(CHART / "ci/default-values.yaml").read_text())


def _stateful() -> dict[str, Any]:
    (found,) = (one for one in _kept() if one["kind"] == "StatefulSet")
    return found


def _ports(stateful: dict[str, Any]) -> list[str]:
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    return [port["name"] for port in container["ports"]]

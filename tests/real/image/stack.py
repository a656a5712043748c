"""Tower and learner stack as pods that podman plays: derived from the chart's kept manifests.

What a cluster does and podman does not is done here, and is no proof of a cluster:

- Controllers. A StatefulSet is its pods and claims, a JobSet of one its pod. A pod of a JobSet that was
  killed is made again by the test, as its Job would do; other pods are started again by podman.
- The kubelet. Variables are resolved, since podman 4.3 knows few of their sources; secrets are mounted as
  config maps, since it leaves mounted secrets in base64; what lies in memory is podman's own /dev/shm.
- Names. Each pod has a fixed address, and all pods have the names of the services that select it.

Network policies are not carried out. Probes are kept; podman carries them out by systemd alone, so the test
asks for one itself where it looks.
"""

import copy
import os
import re
import signal
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.collecting import until
from tests.real.helm.charts import CHART, NAMESPACE, objects, rendered
from tests.real.image.podman import Podman

DOMAIN: Final = f"{NAMESPACE}.svc.cluster.local"
IMAGES: Final = {"overwatch": "tower", "overwatch-rl": "rl"}
"""The target of docker/Dockerfile for the repository that the chart names."""
_SUBNET: Final = "10.89.137"
_INDEX: Final = "apps.kubernetes.io/pod-index"


class Stack:
    """All pods of a values file, on a network of their own."""

    def __init__(self, podman: Podman, values: str, images: dict[str, str], folder: Path) -> None:
        """`images` are what podman calls the image of each target."""
        self._podman, self._folder, self._images = podman, folder, images
        self._network = f"overwatch-test-{os.getpid()}"
        kept = objects(rendered(CHART / f"ci/{values}-values.yaml").read_text())
        self._kept = {(one["kind"], one["metadata"]["name"]): one for one in kept}
        self.pods = {
            pod["metadata"]["name"]: pod
            for one in kept
            for pod in (*_of_set(one), *_of_jobset(one))
            if one["kind"] in ("StatefulSet", "JobSet")
        }
        self.addresses = {name: f"{_SUBNET}.{host}" for host, name in enumerate(self.pods, start=10)}
        self._claims: set[str] = set()

    def play(self) -> None:
        """Make the network and every pod, in no order that matters."""
        self._podman.call("network", "create", "--subnet", f"{_SUBNET}.0/24", self._network)
        for name in self.pods:
            self.make(name)

    def make(self, name: str) -> None:
        """Make a pod, and its claims where they are not there yet."""
        manifests = self._manifests(name)
        claims = {one["metadata"]["name"] for one in manifests if one["kind"] == "PersistentVolumeClaim"}
        wanted = [one for one in manifests if one["metadata"]["name"] not in claims & self._claims]
        self._claims |= claims
        self._file(name).write_text(yaml.safe_dump_all(wanted))
        network = ("--network", self._network, "--ip", self.addresses[name])
        self._podman.call("kube", "play", *network, str(self._file(name)))

    def kill(self, name: str) -> None:
        """SIGKILL to a pod's process, from outside, and the pod is gone with all but its claims."""
        pid = int(self._podman.call("inspect", self._container(name), "--format", "{{.State.Pid}}"))
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.status(name) == 128 + signal.SIGKILL, f"the end of {name}", 60)
        self._unmake(name)

    def status(self, name: str) -> int | None:
        """The exit status of a pod's process, `None` while it runs."""
        shown = self._podman.call(
            "inspect", self._container(name), "--format", "{{.State.Running}} {{.State.ExitCode}}"
        )
        is_running, code = shown.split()
        return None if is_running == "true" else int(code)

    def is_alive(self, name: str) -> bool:
        """Whether a pod's probe of liveness succeeds now, as podman understands it."""
        return self._podman.tried("healthcheck", "run", self._container(name)).returncode == 0

    def log(self, name: str, lines: int = 40) -> str:
        """The last lines that a pod printed."""
        ran = self._podman.tried("logs", "--tail", str(lines), self._container(name))
        return ran.stdout + ran.stderr

    def remove(self) -> None:
        """Delete everything."""
        for name in self.pods:
            self._unmake(name)
        for claim in self._claims:
            self._podman.tried("volume", "rm", "--force", claim)
        self._podman.tried("network", "rm", "--force", self._network)

    def token(self, name: str, key: str) -> str:
        """A key of a secret."""
        return self._secret(name)[key]

    def _container(self, name: str) -> str:
        return f"{name}-{self.pods[name]['spec']['containers'][0]['name']}"

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.yaml"

    def _unmake(self, name: str) -> None:
        if self._file(name).exists():
            self._podman.tried("kube", "down", str(self._file(name)))
        for volume in self._podman.call("volume", "ls", "--quiet").split():
            if volume.startswith(f"{name}--"):
                self._podman.tried("volume", "rm", "--force", volume)

    def _manifests(self, name: str) -> list[dict[str, Any]]:
        """A pod as podman takes it, with its claims and what it mounts."""
        pod = copy.deepcopy(self.pods[name])
        spec = pod["spec"]
        (container,) = spec["containers"]
        in_memory = {one["name"] for one in spec["volumes"] if one.get("emptyDir", {}).get("medium")}
        spec["volumes"] = [one for one in spec["volumes"] if one["name"] not in in_memory]
        mounts = [one for one in container["volumeMounts"] if one["name"] not in in_memory]
        container["volumeMounts"] = mounts
        found = [self._claim(volume) for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
        for volume in spec["volumes"]:
            if "secret" in volume:
                secret = volume.pop("secret")
                items = {"items": secret["items"]} if "items" in secret else {}
                volume["configMap"] = {"name": secret["secretName"], **items}
            if "configMap" in volume:
                # podman calls its volume as the map: each pod has one of its own.
                config = self._config(volume["configMap"]["name"])
                config["metadata"] = {"name": f"{name}--{volume['configMap']['name']}"}
                volume["configMap"]["name"] = config["metadata"]["name"]
                found.append(config)
            volume["name"] = f"{name}--{volume['name']}"
        spec["hostAliases"] = [
            {"ip": self.addresses[other], "hostnames": sorted(names)}
            for other, names in self._names().items()
        ]
        for mount in mounts:
            mount["name"] = f"{name}--{mount['name']}"
        env = self._env(pod, container)
        repository = container["image"].rpartition(":")[0]
        container |= {
            "image": self._images[IMAGES[repository]], "imagePullPolicy": "Never",
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "args": [_expanded(word, env) for word in container["args"]],
        }  # fmt: skip
        return [*found, pod]

    def _claim(self, volume: dict[str, Any]) -> dict[str, Any]:
        name = volume["persistentVolumeClaim"]["claimName"]
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }  # fmt: skip

    def _config(self, name: str) -> dict[str, Any]:
        """A config map, or a secret as one; the kept secrets are empty."""
        one = self._kept.get(("ConfigMap", name))
        data = self._secret(name) if one is None else one["data"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}

    def _secret(self, name: str) -> dict[str, str]:
        return {key: f"{key}-of-{name}" for key in self._kept["Secret", name]["data"]}

    def _env(self, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
        """Variables as a kubelet resolves them."""
        found: dict[str, str] = {}
        for one in container["env"]:
            found[one["name"]] = self._value(one, pod, found)
        return found

    def _value(self, one: dict[str, Any], pod: dict[str, Any], before: dict[str, str]) -> str:
        if "value" in one:
            return _expanded(one["value"], before)
        source = one["valueFrom"]
        if "secretKeyRef" in source:
            return self.token(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"])
        path = source.get("fieldRef", {}).get("fieldPath", "")
        if "resourceFieldRef" in source:
            return str(_limit(pod, source["resourceFieldRef"]["resource"]))
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
        known = {
            "metadata.name": pod["metadata"]["name"], "metadata.uid": "0-0", "metadata.namespace": NAMESPACE,
            "spec.nodeName": "podman", "status.podIP": self.addresses[pod["metadata"]["name"]],
        }  # fmt: skip
        return pod["metadata"]["labels"][label[1]] if label else known[path]

    def _names(self) -> dict[str, set[str]]:
        """What each pod is called by the services that select it; each service's ports are its pod's."""
        found: dict[str, set[str]] = {name: set() for name in self.pods}
        for (kind, service), one in self._kept.items():
            for name, pod in self.pods.items() if kind == "Service" else ():
                if one["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
                    found[name] |= {
                        service,
                        f"{service}.{NAMESPACE}",
                        f"{service}.{DOMAIN}",
                        f"{name}.{service}.{DOMAIN}",
                    }
        return found


def _of_set(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Pods of a StatefulSet, with the claims that its controller would make."""
    if one["kind"] != "StatefulSet":
        return []
    return [
        _pod(f"{one['metadata']['name']}-{index}", one, index) for index in range(one["spec"]["replicas"])
    ]


def _pod(name: str, one: dict[str, Any], index: int) -> dict[str, Any]:
    template = copy.deepcopy(one["spec"]["template"])
    claims = one["spec"].get("volumeClaimTemplates", [])
    template["spec"]["volumes"] += [
        {"name": claim["metadata"]["name"],
         "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{name}"}}
        for claim in claims
    ]  # fmt: skip
    labels = {**template["metadata"]["labels"], _INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": template["spec"],
    }


def _of_jobset(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Pods of a JobSet whose jobs have one pod each."""
    made = []
    for job in one["spec"].get("replicatedJobs", []) if one["kind"] == "JobSet" else ():
        assert (job["replicas"], job["template"]["spec"]["parallelism"]) == (1, 1)
        template = copy.deepcopy(job["template"]["spec"]["template"])
        metadata = {
            "name": f"{one['metadata']['name']}-{job['name']}-0-0",
            "labels": template["metadata"]["labels"],
        }
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return made


def _expanded(text: str, env: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)


def _limit(pod: dict[str, Any], resource: str) -> Any:
    value: Any = pod["spec"]["containers"][0]["resources"]
    for part in resource.split("."):
        value = value[part]
    return value

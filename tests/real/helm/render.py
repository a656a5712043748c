"""Render a chart with Helm's own engine: release name, namespace, chart; as JSON values and what there is.

Runs under whatever Python has the package helm-sdkpy, which needs 3.12, so it is a program of its own.
Helm installs into a small imitation of a cluster that knows kinds and takes everything; what it was given is
printed as YAML. With the word `notes` the notes are printed instead. What Helm refuses goes to stderr.
"""

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import helm_sdkpy
import yaml

CORE = {"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "Pod": "pods",
        "ServiceAccount": "serviceaccounts", "Namespace": "namespaces",
        "PersistentVolumeClaim": "persistentvolumeclaims"}  # fmt: skip
GROUPS = {
    "apps/v1": {"StatefulSet": "statefulsets", "Deployment": "deployments", "DaemonSet": "daemonsets"},
    "batch/v1": {"Job": "jobs"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute": "httproutes"},
    "jobset.x-k8s.io/v1alpha2": {"JobSet": "jobsets"},
    "trainer.kubeflow.org/v1alpha1": {"TrainJob": "trainjobs"},
    "monitoring.coreos.com/v1": {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"},
}


class Cluster(BaseHTTPRequestHandler):
    """Discovery, nothing that is there, and everything that is made."""

    protocol_version = "HTTP/1.1"
    groups = GROUPS
    held: dict[str, dict]
    """What there is, by its path below `/api/v1/`."""

    def do_GET(self) -> None:
        """What there is."""
        path = self.path.partition("?")[0]
        if path == "/version":
            self.emit({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        elif path == "/api":
            self.emit({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            self.emit(
                {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self.group(n) for n in self.groups]}
            )
        elif path == "/api/v1":
            self.emit(self.resources("v1", CORE))
        elif path.startswith("/apis/") and path.removeprefix("/apis/") in self.groups:
            name = path.removeprefix("/apis/")
            self.emit(self.resources(name, self.groups[name]))
        elif path.removeprefix("/api/v1/") in self.held:
            self.emit(self.held[path.removeprefix("/api/v1/")])
        else:
            self.emit({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}, 404)

    def do_PATCH(self) -> None:
        """What is there may be changed."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_POST(self) -> None:
        """Whatever is made is made."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.emit(json.loads(body) if body.startswith(b"{") else {}, 201)

    def do_DELETE(self) -> None:
        """Whatever Helm takes away goes."""
        self.emit({"kind": "Status", "status": "Success"})

    def group(self, name: str) -> dict:
        """One API group."""
        group, version = name.split("/")
        this = {"groupVersion": name, "version": version}
        return {"name": group, "versions": [this], "preferredVersion": this}

    def resources(self, version: str, kinds: dict[str, str]) -> dict:
        """The kinds of one group."""
        listed = [{"name": plural, "singularName": kind.lower(), "namespaced": kind != "Namespace",
                   "kind": kind, "verbs": ["get", "create", "list"]}
                  for kind, plural in kinds.items()]  # fmt: skip
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}

    def emit(self, data: dict, status: int = 200) -> None:
        """Answer with JSON."""
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


async def render(release: str, namespace: str, chart: str, values: dict) -> dict:
    """The release as Helm sees it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_address[1]}"
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": where}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    config = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=yaml.safe_dump(kubeconfig))
    return await helm_sdkpy.Install(config).run(release, chart, values=values, wait=False, timeout=30)


def main(release: str, namespace: str, chart: str, *files: str) -> int:
    """Print the manifest or the notes."""
    values, held, what = files
    Cluster.held = json.loads(Path(held).read_text())
    data = json.loads(Path(values).read_text())
    try:
        made = asyncio.run(render(release, namespace, chart, data))
    except helm_sdkpy.HelmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    info = made.get("info") or {}
    hooks = "".join(f"---\n{hook['manifest']}\n" for hook in made.get("hooks") or [])
    sys.stdout.write(info.get("notes", "") if what == "notes" else f"{made['manifest']}\n{hooks}")
    return 0


sys.exit(main(*sys.argv[1:]))

"""Rendering the chart in tests: by Helm's engine from a package, else not at all."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[3] / "helm" / "overwatch"
CI: Final = sorted(CHART.glob("ci/*-values.yaml"))
VARIABLE: Final = "OVERWATCH_HELM_PYTHON"
"""Names a Python that has the package helm-sdkpy, where none on the path has."""
CLUSTER: Final[dict[str, Any]] = {
    "namespaces/kube-system": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
}
"""What a cluster holds before anything is installed, by its path."""
HEAD: Final = "# What Helm makes of the values and of a chart of digest {digest}; see tests/real/helm.\n"
"""How kept manifests begin: where Helm is not, the digest shows whether they are of today's chart."""
MADE: Final = "overwatch.dev/made"
"""Annotation of the chart's certificate: when it was made, in Unix time."""
RELEASE, NAMESPACE = "tower", "rl"
_RENDER: Final = Path(__file__).with_name("render.py")
_TIMEOUT_S: Final = 120


class ChartRefusedError(ValueError):
    """Helm does not render it; the message is Helm's."""


@cache
def engine() -> tuple[str, ...] | None:
    """The command that renders, `None` where there is none."""
    for name in (os.environ.get(VARIABLE), sys.executable, "python3.13", "python3.12", "python3.14"):
        found = shutil.which(name) if name else None
        if (
            found
            and not subprocess.run(
                [found, "-c", "import helm_sdkpy, yaml"], capture_output=True, check=False, timeout=_TIMEOUT_S
            ).returncode
        ):
            return (found, str(_RENDER))
    return None


NO_ENGINE: Final = (
    "Helm is not here: `pip install helm-sdkpy pyyaml` into a Python of 3.12 or later and name it in "
    f"{VARIABLE}"
)


def render(
    values: dict[str, Any], scratch: Path, *, notes: bool = False, held: dict[str, Any] | None = None
) -> str:
    """What Helm makes of values, hooks included; raises `ChartRefusedError`.

    `held` is what the cluster holds by path; without anything it is as if there were none.
    """
    command = engine()
    assert command is not None
    file, cluster = scratch / "values.json", scratch / "held.json"
    file.write_text(json.dumps(values))
    cluster.write_text(json.dumps(CLUSTER if held is None else held))
    what = "notes" if notes else "manifest"
    arguments = [RELEASE, NAMESPACE, str(CHART), str(file), str(cluster), what]
    env = {**os.environ, "HELM_DRIVER": "memory"}
    made = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, env=env, timeout=_TIMEOUT_S
    )
    if made.returncode:
        raise ChartRefusedError(made.stderr)
    return made.stdout


def objects(text: str) -> list[dict[str, Any]]:
    """Manifests as objects, in order of kind and name."""
    found = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]  # an eighth of the time
    return sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"]))


def steady(found: list[dict[str, Any]]) -> str:
    """Objects as text that is the same each time: secrets and boards of many lines are left out."""
    kept = []
    for one in found:
        shown = one
        if one["kind"] == "Secret":
            meta = {**one["metadata"], "annotations": {**one["metadata"]["annotations"]}}
            if MADE in meta["annotations"]:
                meta["annotations"][MADE] = "0"
            shown = {**one, "metadata": meta, "data": dict.fromkeys(sorted(one["data"]), "")}
        elif one["kind"] == "ConfigMap" and "-board-" in one["metadata"]["name"]:
            shown = {**one, "data": dict.fromkeys(one["data"], "")}
        elif one["kind"] == "PrometheusRule":
            groups = [group["name"] for group in one["spec"]["groups"]]
            shown = {**one, "spec": {"groups": [{"name": name, "rules": []} for name in groups]}}
        kept.append(shown)
    text = yaml.safe_dump_all(kept, sort_keys=True, width=110)
    return HEAD.format(digest=digest()) + re.sub(r" +\n", "\n", text)


def digest() -> str:
    """Of all that Helm makes kept manifests of; contents of boards and rules are not in them."""
    paths = [CHART / "Chart.yaml", CHART / "values.yaml", *CI, *CHART.glob("files/tests/*")]
    paths += [path for path in CHART.rglob("templates/**/*") if path.is_file()]
    made = hashlib.sha256()
    for path in sorted(paths):
        made.update(f"{path.relative_to(CHART).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


def rendered(values: Path) -> Path:
    """Where the manifests of a values file are kept."""
    return CHART / "ci" / "rendered" / values.name.replace("-values", "")


def kept(values: Path) -> list[dict[str, Any]]:
    """The kept manifests of a values file."""
    return objects(rendered(values).read_text())


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of a kind."""
    return [one for one in found if one["kind"] == kind]


def jobs(jobset: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The jobs that the controller makes of a JobSet, without what it adds to them."""
    for part in jobset["spec"]["replicatedJobs"]:
        name = f"{jobset['metadata']['name']}-{part['name']}-0"
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, **part["template"]}


def templates(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod, its labels and its spec, with its owner's name; a TrainJob's is its runtime's own."""
    for one in found:
        name = f"{one['kind']} {one['metadata']['name']}"
        if one["kind"] == "Pod":
            yield name, one
        elif one["kind"] == "JobSet":
            yield from ((name, job["spec"]["template"]) for job in jobs(one))
        elif one["kind"] != "TrainJob" and "template" in one.get("spec", {}):
            yield name, one["spec"]["template"]


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The spec of every pod with its owner's name."""
    return ((name, template["spec"]) for name, template in templates(found))

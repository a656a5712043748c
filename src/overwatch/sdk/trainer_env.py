"""What an exporter reads of its trainer's environment, also where that trainer is not its parent.

Owns which variables those are. What belongs to one run travels in its greeting; what libraries read by
themselves cannot, so only trainers that have it in common share an exporter. Rules: secrets are among them,
so they lie only in files that their owner alone can read. Must not know what a variable means.
"""

import os
from collections.abc import Mapping
from typing import Final

from overwatch.sdk.frames import Hello
from overwatch.sdk.otlp_env import absolute, is_text

_MODULES: Final = "PYTHONPATH"
SCHEDULER: Final = {
    "slurm.job.id": "SLURM_JOB_ID",
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.step.id": "SLURM_STEP_ID",
    "slurm.array.task.id": "SLURM_ARRAY_TASK_ID",
    "slurm.cluster.name": "SLURM_CLUSTER_NAME",
    "slurm.partition.name": "SLURM_JOB_PARTITION",
    "k8s.pod.name": "K8S_POD_NAME",
    "k8s.pod.uid": "K8S_POD_UID",
    "k8s.namespace.name": "K8S_NAMESPACE_NAME",
    "k8s.node.name": "K8S_NODE_NAME",
    "k8s.job.name": "K8S_JOB_NAME",
    "k8s.container.name": "K8S_CONTAINER_NAME",
}
"""Attribute of a run's resource and the variable that it is read from."""
_RESOURCE: Final = frozenset({"OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"})
_OWN: Final = _RESOURCE | {
    "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_SDK_DISABLED", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "OVERWATCH_DCGM_URL", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR", "XDG_STATE_HOME", *SCHEDULER.values(),
}  # fmt: skip
"""Of one run."""
_GIT: Final = frozenset(
    {
        "HOME", "PATH", "XDG_CONFIG_HOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    }
)  # fmt: skip
"""With which git finds the revision of the run's folder."""
_OF_DESTINATION: Final = "OTEL_EXPORTER_OTLP_"
_SWITCHES: Final = frozenset({"OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER"})
_PROXIES: Final = frozenset(
    {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"}
)
"""In lower or upper case; gRPC reads them by itself."""
_LIBRARIES: Final = ("GRPC_", "LD_", "SSL_", "OTEL_")
_INTERPRETER: Final = frozenset(
    {
        "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPLATLIBDIR", "PYTHONWARNINGS",
    }
)  # fmt: skip


def run_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of this process's environment is its runs' own, but for the destination: see `otlp_env`.

    A value that is no text can be sent to no other process, and is left out.
    """
    return {name: value for name, value in env.items() if (name in _OWN or name in _GIT) and is_text(value)}


def env_of(hello: Hello) -> Mapping[str, str]:
    """A trainer's environment, as far as its exporter reads it.

    What a version left that kept none is read by the environment of this process.
    """
    if hello.env is None:
        return os.environ
    ours = {name: value for name, value in os.environ.items() if name not in _OWN and name not in _GIT}
    return {**ours, **(hello.otlp_env or {}), **hello.env}


def common_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the trainers of one exporter have in common: libraries read it by themselves."""
    common = {
        name: value
        for name, value in env.items()
        if name in _INTERPRETER
        or name.lower() in _PROXIES
        or (name.startswith(_LIBRARIES) and not _travels(name))
    }
    return {**common, **_absolute(env)}


def exporter_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of an exporter process: nothing in it decides anything for one run."""
    kept = {name: value for name, value in env.items() if name not in _OWN and not _travels(name)}
    return {**kept, **_absolute(env)}


def _travels(name: str) -> bool:
    return name in _OWN or name in _SWITCHES or name.startswith(_OF_DESTINATION)


def _absolute(env: Mapping[str, str]) -> dict[str, str]:
    """Where modules are looked for, from whatever folder."""
    found = env.get(_MODULES)
    if not found:
        return {}
    return {_MODULES: os.pathsep.join(absolute(one or os.curdir) for one in found.split(os.pathsep))}

"""What an exporter reads of its trainer's environment, also where that trainer is not its parent.

Owns which variables those are. What belongs to one run travels in its greeting, what decides the destination
lies beside its spool too; what libraries read by themselves cannot travel, so only trainers that have it in
common share an exporter. Rules: secrets are among them, so they lie only in files that their owner alone can
read; a value that is no text can be sent to no other process, and is left out. Must not know what a variable
means.
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from overwatch.sdk.frames import Hello

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
    "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR", "XDG_STATE_HOME",
    *SCHEDULER.values(),
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
_TOKEN_FILE: Final = "OVERWATCH_INGEST_TOKEN_FILE"  # noqa: S105 a name, not a token
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""In lower or upper case."""
_GRPC_PROXIES: Final = frozenset({"grpc_proxy", "no_grpc_proxy"})
"""gRPC reads these, and those above, by itself."""
_FILES: Final = ("_CERTIFICATE", "_CLIENT_KEY", _TOKEN_FILE)
"""How the names end whose values are paths."""
_LIBRARIES: Final = ("GRPC_", "LD_", "SSL_", "OTEL_")
_INTERPRETER: Final = frozenset(
    {
        "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPLATLIBDIR", "PYTHONWARNINGS",
    }
)  # fmt: skip


def otlp_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that decide the destination, for another process to use in the place of its own.

    Endpoints, headers, certificates, proxies, and where a collector of this machine is announced.
    """
    names = _SWITCHES | {"XDG_RUNTIME_DIR", _TOKEN_FILE}
    kept = {
        name: _absolute(value) if name.endswith(_FILES) else value
        for name, value in env.items()
        if (name.startswith(_OF_DESTINATION) or name in names or name.lower() in _PROXIES) and _is_text(value)
    }
    return {**kept, "TMPDIR": tempfile.gettempdir()}


def run_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of this process's environment is its runs' own, but for the destination."""
    return {name: value for name, value in env.items() if (name in _OWN or name in _GIT) and _is_text(value)}


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
        or name.lower() in _PROXIES | _GRPC_PROXIES
        or (name.startswith(_LIBRARIES) and not _travels(name))
    }
    return {**common, **_module_path(env)}


def exporter_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of an exporter process: nothing in it decides anything for one run."""
    kept = {name: value for name, value in env.items() if name not in _OWN and not _travels(name)}
    return {**kept, **_module_path(env)}


def _travels(name: str) -> bool:
    return name in _OWN or name in _SWITCHES or name.startswith(_OF_DESTINATION)


def _module_path(env: Mapping[str, str]) -> dict[str, str]:
    """Where modules are looked for, from whatever folder."""
    found = env.get(_MODULES)
    if not found:
        return {}
    return {_MODULES: os.pathsep.join(_absolute(one or os.curdir) for one in found.split(os.pathsep))}


def _absolute(path: str) -> str:
    """A path as another process finds it; as it is where there is no working folder any more."""
    with contextlib.suppress(OSError):
        return str(Path(path).absolute()) if path else path
    return path


def _is_text(value: str) -> bool:
    """Whether a value of the environment was valid UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""What `overwatch doctor` finds of a container: its control group, its pod, names that it must find.

Rules: nothing is changed, nothing is left behind; outside of a container the same questions have answers. A
look-up of a name has a deadline. Every file is looked for below `root`. Must not know what
a limit is used for.
"""

import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from overwatch import discovery
from overwatch.cgroup import ControlGroup, Memory
from overwatch.cli.doctor_machine import Verdict, failure, ok, warning
from overwatch.collector.limits import LimitsConfig

LEAST_MEMORY: Final = 512 << 20
"""Bytes below which a collector has little room for runs."""
LEAST_CORES: Final = 0.5
LEAST_FILES: Final = 4096
"""Open files below which listeners take fewer connections than as shipped."""
LOOKUP_S: Final = 5.0
_FULL: Final = 0.9
_MIB: Final = 1 << 20
_ACCOUNT: Final = "var/run/secrets/kubernetes.io/serviceaccount/token"
_NAMES: Final = ("K8S_POD_NAME", "K8S_NAMESPACE_NAME", "K8S_NODE_NAME")
_ENDPOINTS: Final = (
    "OVERWATCH_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)  # fmt: skip
Resolve = Callable[[str], object]


def limits(
    config: LimitsConfig, group: ControlGroup | None = None, files: tuple[int, int] | None = None
) -> Iterator[Verdict]:
    """Memory, CPU and open files; `files` are the soft and the hard limit."""
    group = ControlGroup() if group is None else group
    memory = group.memory()
    yield from [ok("memory: no control group limits it")] if memory is None else _memory(memory, config)
    kills = group.oom_kills()
    if kills:
        yield warning(
            f"memory: the kernel killed {kills} processes of this control group for want of memory",
            "raise the pod's resources.limits.memory, or lower receivers.otlp.limits.limit_mib",
        )
    cpu = group.cpu()
    if cpu is None:
        yield ok("CPU: no control group limits it")
    elif cpu.cores < LEAST_CORES:
        yield warning(
            f"CPU: {cpu.cores:g} cores are the most",
            f"raise the pod's resources.limits.cpu to {LEAST_CORES:g} or more: senders wait for the fold",
        )
    else:
        yield ok(f"CPU: {cpu.cores:g} cores are the most")
    yield _open_files(*(resource.getrlimit(resource.RLIMIT_NOFILE) if files is None else files))


def _memory(memory: Memory, config: LimitsConfig) -> Iterator[Verdict]:
    limit = f"memory: {memory.limit / _MIB:,.0f} MiB are the control group's limit"
    if config.limit_mib is not None and config.hard_bytes >= memory.limit:
        yield failure(
            f"{limit}, and receivers.otlp.limits.limit_mib is {config.limit_mib}",
            "leave limit_mib out, or set it below: the kernel ends the collector before it refuses",
        )
    if memory.used is not None and memory.used > _FULL * memory.limit:
        yield warning(
            f"{limit}, of which {memory.used / _MIB:,.0f} are used", "raise the pod's resources.limits.memory"
        )
    elif memory.limit < LEAST_MEMORY:
        yield warning(limit, f"raise the pod's resources.limits.memory to {LEAST_MEMORY // _MIB}Mi or more")
    else:
        used = "" if memory.used is None else f", {memory.used / _MIB:,.0f} are used"
        yield ok(f"{limit}{used}")


def _open_files(soft: int, hard: int) -> Verdict:
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        return warning(
            f"open files: {hard} are the most",
            f"raise the limit to {LEAST_FILES} or more (ulimit -Hn, LimitNOFILE=, the container's runtime)",
        )
    shown = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,} are the most"
    return ok(f"open files: {shown}, {soft:,} without a request")


def pod(env: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Iterator[Verdict]:
    """What Kubernetes gives; that there is none is well too."""
    is_read_only = bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    yield ok("the root is read-only" if is_read_only else "the root may be written to")
    yield _temporary()
    yield _announced()
    if not env.get("KUBERNETES_SERVICE_HOST"):
        yield ok("this is no pod of Kubernetes")
        return
    named = [f"{name}={env[name]}" for name in _NAMES if env.get(name)]
    missing = [name for name in _NAMES if not env.get(name)]
    if missing:
        yield warning(
            f"a pod of Kubernetes without {', '.join(missing)}",
            "set them by fieldRef, as the chart does: telemetry then names pod and node",
        )
    else:
        yield ok(f"a pod of Kubernetes: {', '.join(named)}")
    if (root / _ACCOUNT).exists():
        yield warning(
            f"a token of the cluster's API is mounted at /{_ACCOUNT}",
            "set automountServiceAccountToken: false; Overwatch never calls that API",
        )


def _temporary() -> Verdict:
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile():
            return ok(f"temporary files go to {folder}")
    except OSError as error:
        return failure(
            f"no folder for temporary files can be written to: {error.strerror or error}",
            "mount an emptyDir at /tmp, or set TMPDIR to one",
        )


def _announced() -> Verdict:
    try:
        place = discovery.path().parent
        is_open = os.access(_nearest(place), os.W_OK | os.X_OK)
    except OSError:
        is_open = False
    if is_open:
        return ok(f"a collector is announced in {place}")
    return warning(
        "a collector has no folder that may be written to, to be announced to other programs of this user",
        "set XDG_RUNTIME_DIR to such a folder, e.g. an emptyDir",
    )


def synced(folder: Path) -> Iterator[Verdict]:
    """A write into the data folder, or where it would be made, until it is on the disk."""
    there = _nearest(folder)
    begin = time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        yield failure(
            f"journal: {there} cannot be written to: {error.strerror or error}",
            "mount a volume there for this user (fsGroup), or set OVERWATCH_DATA_DIR",
        )
        return
    took_s = time.monotonic() - begin
    found = f"journal: a write was on the disk in {took_s * 1000:.1f} ms"
    if took_s > 1.0:
        yield warning(found, "use a faster volume: every acknowledgement waits for its sync")
    else:
        yield ok(found)


def _nearest(folder: Path) -> Path:
    """A folder, or the nearest above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.exists())


def lookups(
    endpoint: str | None,
    env: Mapping[str, str] = os.environ,
    resolve: Resolve = lambda host: socket.getaddrinfo(host, None),
    within_s: float = LOOKUP_S,
) -> Iterator[Verdict]:
    """Whether each host that is sent to has an address."""
    hosts = dict(_hosts(endpoint, env))
    if not hosts:
        yield ok("no other host is named")
        return
    threads = ThreadPoolExecutor(len(hosts), thread_name_prefix="lookup")
    found = {host: threads.submit(resolve, host) for host in hosts}
    threads.shutdown(wait=False)
    for host, answer in found.items():
        try:
            answer.result(within_s)
        except LateError:
            why = f"no answer within {within_s:g} s"
        except (OSError, UnicodeError) as error:
            why = str(error)
        else:
            yield ok(f"{host} has an address ({hosts[host]})")
            continue
        yield failure(
            f"{host} has no address ({hosts[host]}): {why}",
            "correct the name, as SERVICE.NAMESPACE.svc; let the NetworkPolicy pass UDP and TCP 53",
        )


def _hosts(endpoint: str | None, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Hosts, and what names them."""
    named = [(name, env.get(name)) for name in _ENDPOINTS]
    for by, url in (*named, ("--endpoint", endpoint)):
        host = urlsplit(url if url and "://" in url else f"//{url or ''}").hostname
        if host:
            yield host, by

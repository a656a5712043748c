"""What goes with everything that this producer sends: run, process, revision.

Rules: asking git takes at most a second a question; whatever cannot be found out is absent. Must not know
what is sent.
"""

import socket
import subprocess
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec
from opentelemetry.sdk.resources import Resource

import overwatch
from overwatch.otlp import wire
from overwatch.sdk.frames import Hello
from overwatch.sdk.trainer_env import SCHEDULER, env_of

GIT_TIMEOUT_S: Final = 1.0
DEFAULT_SERVICE: Final = "overwatch-trainer"


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the trainer's working tree."""

    sha: str | None
    dirty: bool | None
    """Whether tracked files differ from the commit."""


def revision(folder: bytes | None, env: Mapping[str, str]) -> Revision:
    """Ask git about a trainer's working folder, in its environment."""
    sha = _git(folder, env, "rev-parse", "HEAD")
    changes = None if sha is None else _git(folder, env, "status", "--porcelain", "--untracked-files=no")
    return Revision(sha=sha, dirty=None if changes is None else bool(changes))


def resource(hello: Hello, found: Revision, host: str) -> Resource:
    """The resource of a producer; the resource attributes of its environment add to it."""
    env = env_of(hello)
    named: dict[str, str | int | bool | None] = {
        wire.RUN_ID: hello.run_id,
        wire.TASK: hello.started.task,
        wire.ALGORITHM: hello.started.algo,
        wire.ROLE: hello.role,
        wire.RANK: hello.rank,
        wire.INSTANCE: hello.epoch,
        wire.JOIN: hello.join,
        wire.ATTEMPT: hello.started.attempt,
        wire.GROUP: hello.started.group,
        wire.DISTRO: wire.OURS,
        "telemetry.distro.version": overwatch.__version__,
        "vcs.ref.head.revision": found.sha,
        "overwatch.vcs.dirty": found.dirty,
        "host.name": host,
        "process.pid": hello.pid,
        **scheduler(env),
    }
    given = {name: value for name, value in named.items() if value is not None}
    base = Resource.create({**_requested(env), **given})
    service = str(base.attributes.get(wire.SERVICE, ""))
    if service.startswith("unknown_service"):
        base = base.merge(Resource({wire.SERVICE: DEFAULT_SERVICE}))
    return Resource(base.attributes, base.schema_url or wire.SCHEMA_URL)


def scheduler(env: Mapping[str, str]) -> dict[str, str]:
    """What Slurm states of this job, and what a Kubernetes pod knows of itself by the downward API."""
    named = {name: env.get(variable) for name, variable in SCHEDULER.items()}
    return {name: value for name, value in named.items() if value}


def _requested(env: Mapping[str, str]) -> dict[str, str]:
    """What OpenTelemetry's variables add to a resource."""
    pairs = (item.partition("=") for item in env.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    found = {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals and name.strip()}
    service = env.get("OTEL_SERVICE_NAME")
    return found | {wire.SERVICE: service} if service else found


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def _git(folder: bytes | None, env: Mapping[str, str], *arguments: str) -> str | None:
    if folder is None:
        return None
    environment: Mapping[str, str] = {**env, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        answer = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            check=True,
            text=True,
            env=environment,
            cwd=folder,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()

"""Who this run is: its id, its rank, its configuration without secrets.

Rules: an id that the launcher left empty or `none` is unset. Must not know how anything is sent.
"""

import dataclasses
import hashlib
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from overwatch.events import PENDING
from overwatch.platform import process_began
from overwatch.sdk.values import RefusedError, maybe_text, text

REDACTED: Final = "[redacted]"
MAX_CONFIG: Final = 512
"""Most entries of a configuration that are sent."""
MAX_VALUE: Final = 512

_SECRET: Final = re.compile(r"token|secret|password|key", re.IGNORECASE)
CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_NOT_ID: Final = re.compile(r"[^a-z0-9_.]+")
_INTERACTIVE: Final = "4294967290"
"""The step that Slurm makes for a shell."""
_TASKS: Final = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_LONGEST_SLUG: Final = 128
_LONGEST_ID: Final = 200
"""Of an id that is longer, how long it was follows: collectors take 256 characters."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which run a process belongs to, and which of its processes it is."""

    run_id: str
    """With `join`, only rank 0's is the run's own; the other ranks' is a stand-in."""
    rank: int
    join: str | None = None
    """What the ranks of one launch share where its launcher gave them no id."""
    local_rank: int | None = None
    world_size: int | None = None
    attempt: int | None = None
    """How often the launcher has started this run before; 0 the first time."""
    group: str | None = None
    """The arm of a comparison that the run belongs to."""


def identify(
    given: str | None,
    task: str | None,
    *,
    rank: int | None = None,
    group: str | None = None,
    env: Mapping[str, str] = os.environ,
    command: Sequence[str] | None = None,
) -> Identity:
    """Who this process is: as given, else as its launcher's environment has it.

    `command` is this program with its arguments, else those of the interpreter.
    """
    own_rank = rank if rank is not None else _count(env, "RANK", "SLURM_PROCID") or 0
    found, join = _launched_id(given, env, sys.argv if command is None else command), None
    if found is None and (launch := _launch_key(env)) is not None:
        key, is_whole = launch
        if is_whole:
            found = f"{_slug(task)}-{key[:12]}"
        else:
            join = key
            found = f"{PENDING}{key[:12]}" if own_rank else f"{_slug(task)}-{_digest(key, *_parent())[:12]}"
    return Identity(
        run_id=found or f"{_slug(task)}-{time.strftime('%m%d-%H%M')}-{secrets.token_hex(2)}",
        rank=own_rank,
        join=join,
        local_rank=_count(env, "LOCAL_RANK", "SLURM_LOCALID"),
        world_size=_count(env, "WORLD_SIZE", *(_TASKS if _slurm_step(env) else ())),
        attempt=_attempt(env),
        group=maybe_text(group or env.get("OVERWATCH_GROUP") or None),
    )


def _launched_id(given: str | None, env: Mapping[str, str], command: Sequence[str]) -> str | None:
    """The id that was given; `none` and empty are unset."""
    named = (given, env.get("OVERWATCH_RUN_ID"), env.get("TORCHELASTIC_RUN_ID"), _slurm(env, command))
    for candidate in named:
        if candidate and candidate.strip() and candidate.strip().lower() != "none":
            return text(candidate.strip(), _LONGEST_ID)
    return None


def _slug(task: str | None) -> str:
    return _NOT_ID.sub("-", (task or "run")[:_LONGEST_SLUG].lower()).strip("-") or "run"


def _slurm(env: Mapping[str, str], command: Sequence[str]) -> str | None:
    """Job and step: one allocation runs many. A task of an array is called as `squeue` calls it.

    A batch script that calls no `srun` may start several programs, so the command is part of the id; ranks
    that another launcher starts in it may differ in their arguments and are one run. A job that is requeued
    has the same id again. `None` for what a person starts in an allocation, where nothing is.
    """
    job, array, task = (
        env.get(name) for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
    )
    if not job:
        return None
    name = f"slurm-{array}_{task}" if array and task else f"slurm-{job}"
    if (step := _slurm_step(env)) is not None:
        return f"{name}.{step}"
    if env.get("SLURM_STEP_ID") or "SLURM_PROCID" not in env:
        return None
    return (
        f"{name}.batch" if (_count(env, "WORLD_SIZE") or 1) > 1 else f"{name}.batch.{_digest(*command)[:4]}"
    )


def _slurm_step(env: Mapping[str, str]) -> str | None:
    """The step that `srun` made for this process; a shell in an allocation has a number of its own kind."""
    step = env.get("SLURM_STEP_ID")
    return step if step and step != _INTERACTIVE else None


def _attempt(env: Mapping[str, str]) -> int | None:
    """Restarts as they are given, else those of all launchers: each counts its own."""
    given = _count(env, "OVERWATCH_ATTEMPT")
    restarts = [_count(env, name) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    counted = [count for count in restarts if count is not None]
    return given if given is not None or not counted else sum(counted)


def _launch_key(env: Mapping[str, str]) -> tuple[str, bool] | None:
    """What the ranks of a launch without an id share, and whether no other launch ever shares it.

    On one machine the ranks have one parent, which makes the key unique (torchrun's agent starts its ranks
    again at another port); over several machines only the meeting point is common, and the next launch may
    meet there again.
    """
    world, address, port = env.get("WORLD_SIZE", ""), env.get("MASTER_ADDR"), env.get("MASTER_PORT")
    if not _DIGITS.fullmatch(world) or int(world) < 2 or not address or not port:
        return None
    is_whole = env.get("LOCAL_WORLD_SIZE") == world
    if is_whole and "TORCHELASTIC_RESTART_COUNT" in env:
        return _digest(*_parent(), world), True
    return _digest(*(_parent() if is_whole else ()), address, port, world), is_whole


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _parent() -> tuple[str, ...]:
    """The launcher's process, so that another process with its number is another launch."""
    return str(os.getppid()), *process_began(os.getppid())


def _count(env: Mapping[str, str], *names: str) -> int | None:
    """The first of the variables that holds a whole number that can be sent."""
    return next((int(env[name]) for name in names if _DIGITS.fullmatch(env.get(name, ""))), None)


def config_text(config: object) -> dict[str, str]:
    """A configuration flat and as text: nested keys joined by dots, secrets left out.

    Takes a mapping, a dataclass or an argparse namespace; raises `RefusedError` for anything else.
    """
    entries = _entries(config)
    if entries is None and config is not None:
        raise RefusedError(f"{type(config).__name__} is no configuration; pass a mapping or a dataclass")
    flat: dict[str, str] = {}
    _flatten("", entries or {}, flat)
    return flat


def _flatten(prefix: str, entries: Mapping[object, object], flat: dict[str, str]) -> None:
    for key, value in entries.items():
        if len(flat) >= MAX_CONFIG:
            return
        name = f"{prefix}{text(key, MAX_VALUE)}"
        nested = None if len(prefix) > MAX_VALUE else _entries(value)
        if name and _SECRET.search(name):
            flat[name] = REDACTED
        elif nested is not None:
            _flatten(f"{name}.", nested, flat)
        elif name:
            flat[name] = CREDENTIALS.sub(REDACTED, text(value, MAX_VALUE))


def _entries(value: object) -> Mapping[object, object] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value).items()) if type(value).__name__ == "Namespace" else None

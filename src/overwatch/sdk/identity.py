"""Who this run is: its id, its rank, its configuration without secrets.

Rules: an id that the launcher left empty or `none` is unset. Must not know how anything is sent.
"""

import dataclasses
import os
import re
import secrets
import time
from collections.abc import Mapping
from typing import Final

from overwatch.sdk.values import text

REDACTED: Final = "[redacted]"
MAX_CONFIG: Final = 512
"""Most entries of a configuration that are sent."""
MAX_VALUE: Final = 512

_SECRET: Final = re.compile(r"token|secret|password|key", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_NOT_ID: Final = re.compile(r"[^a-z0-9_.]+")


def run_id(given: str | None, task: str | None, env: Mapping[str, str] = os.environ) -> str:
    """The run's id: as given, else the launcher's, else a new one named after the task."""
    for candidate in (given, env.get("OVERWATCH_RUN_ID"), env.get("TORCHELASTIC_RUN_ID"), _slurm(env)):
        if candidate and candidate.strip().lower() != "none":
            return text(candidate.strip(), 256)
    name = _NOT_ID.sub("-", (task or "run").lower()).strip("-") or "run"
    return f"{name}-{time.strftime('%m%d-%H%M')}-{secrets.token_hex(2)}"


def _slurm(env: Mapping[str, str]) -> str | None:
    """Job, step and array task: one allocation runs many steps."""
    job = env.get("SLURM_JOB_ID")
    if not job:
        return None
    array = env.get("SLURM_ARRAY_TASK_ID")
    return f"slurm-{job}.{env.get('SLURM_STEP_ID') or 'batch'}{f'.{array}' if array else ''}"


def rank(given: int | None, env: Mapping[str, str] = os.environ) -> int:
    """This process among those of the run: as given, else the launcher's, else 0."""
    if given is not None:
        return int(given)
    word = env.get("RANK") or env.get("SLURM_PROCID") or ""
    return int(word) if word.isdecimal() else 0


def config_text(config: object) -> dict[str, str]:
    """A configuration flat and as text: nested keys joined by dots, secrets left out.

    Takes a mapping, a dataclass, or any object with attributes (an argparse namespace).
    """
    flat: dict[str, str] = {}
    _flatten("", _entries(config) or {}, flat)
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
            flat[name] = _CREDENTIALS.sub(REDACTED, text(value, MAX_VALUE))


def _entries(value: object) -> Mapping[object, object] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value).items()) if type(value).__name__ == "Namespace" else None

"""How a run begins for a program that only logs: its name, its settings, its library.

Must not know which writer logs.
"""

import inspect
import itertools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from overwatch import sdk
from overwatch.adapters.wandb_absent import entries_of
from overwatch.catalog import Library, parse_library
from overwatch.sdk import Run

log: Final = logging.getLogger("overwatch.adapters")

LIBRARY_ENV: Final = "OVERWATCH_LIBRARY"
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "task": ("env_id", "env_name", "gym_id", "env", "task", "run_name"),
        "algo": ("algo", "algorithm", "exp_name"),
        "n_envs": ("num_envs", "n_envs", "num_actors"),
        "updates": ("num_iterations", "num_updates", "max_iterations", "max_epochs"),
    }
)
"""What of a configuration names its run and counts it, by the names that programs use, the surest first."""
GENERIC: Final = frozenset({"summaries", ".summary", "summary", "logs", "log", "tb", "tensorboard", "runs"})
"""Names of folders that do not name the run in them."""
STARTING: Final = frozenset(inspect.signature(sdk.start).parameters) - {"library"}
"""Arguments of `sdk.start`, none of which a writer has; `library` is that of the writer's names."""
_COUNT: Final = itertools.count(1)


@dataclass
class Start:
    """Begins the run of a writer; holds no writer, which may be collected."""

    given: Run | None
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `sdk.start`, before what the configuration has."""

    def __call__(self) -> Run:
        """The run."""
        return self.given or started(self.name, self.config, self.settings)


def started(
    name: str, config: Mapping[str, object], settings: Mapping[str, Any] = MappingProxyType({})
) -> Run:
    """A run of its own, named after what its configuration has by the names that programs use.

    `settings` are arguments of `sdk.start` and come before; its `config` is added. The id of the environment
    is the first such run's alone: several in one process are several runs.
    """
    stated = {key: value for key, value in settings.items() if key != "library"}
    config = {**config, **entries_of(stated.pop("config", None))}
    first = {row: next((str(config[key]) for key in keys if config.get(key) is not None), None)
             for row, keys in SETTINGS.items()}  # fmt: skip
    known = {
        "run_id": _own_id(),
        "task": first["task"] or name,
        "algo": first["algo"],
        "n_envs": _whole(first["n_envs"]),
        "updates": _whole(first["updates"]),
    }
    return sdk.start(**{**known, **stated, "config": config})


def _whole(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdecimal() else None


def _own_id() -> str | None:
    """`None` for the first run of this process; a number behind the environment's id for each later one."""
    given = os.environ.get("OVERWATCH_RUN_ID", "").strip()
    nth = next(_COUNT)
    return f"{given}-{nth}" if given and nth > 1 else None


def given_library(name: str | None) -> Library | None:
    """The library of an argument, else of the environment; what is no library is logged."""
    wanted = name or os.environ.get(LIBRARY_ENV, "").strip()
    try:
        return parse_library(wanted) if wanted else None
    except ValueError as error:
        log.warning("%s; it is recognised by the names it logs", error)
        return None


def settings(table: str) -> dict[str, str]:
    r"""A table of Markdown with two columns, without its head.

    >>> settings("|param|value|\n|-|-|\n|env_id|CartPole-v1|\n|gamma|0.99|")
    {'env_id': 'CartPole-v1', 'gamma': '0.99'}
    """
    rows = [line.strip().strip("|").split("|", 1) for line in table.splitlines()[2:]]
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[1] != "None"}


def run_name(folder: str) -> str:
    """The last part of a folder that names something.

    >>> run_name("runs/cartpole_07-12/summaries")
    'cartpole_07-12'
    """
    parts = [part for part in PurePath(folder).parts if part.lower() not in GENERIC and not part.isdigit()]
    return parts[-1].strip(os.sep) or "run" if parts else "run"

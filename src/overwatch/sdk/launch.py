"""Starting a run: what the trainer says of itself greets a new exporter process.

Rules: a disabled or impossible telemetry is a run that sends nothing, never an error; an argument that cannot
be used is left out with a warning (`arguments`). Must not know how a
run speaks afterwards.
"""

import logging
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from overwatch.catalog.presets import parse_preset, preset_for
from overwatch.events import MetricInfo, RunStarted
from overwatch.sdk import exits, identity
from overwatch.sdk.arguments import (
    accepted,
    codes,
    count,
    mapping,
    metric,
    names,
    text_if_set,
    url,
)
from overwatch.sdk.frames import Hello
from overwatch.sdk.link import Link, LinkLimits
from overwatch.sdk.otlp_env import otlp_env
from overwatch.sdk.run import Run
from overwatch.sdk.terminal import Terminal, is_quiet
from overwatch.sdk.torchlanes import torch_lanes
from overwatch.sdk.trainer_env import run_env
from overwatch.sdk.values import MAX_REASON, text
from overwatch.sdk.words import WordTables, word_tables

log: Final = logging.getLogger("overwatch.sdk")

LIMITS: Final = LinkLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a trainer may say of its run; everything it leaves out is absent."""

    run_id: str | None = None
    """Else the launcher's id, else a new one."""
    task: str | None = None
    algo: str | None = None
    n_envs: int | None = None
    config: object | None = None
    """A mapping, dataclass or namespace; secrets are left out by their names."""
    reward_mode: str | None = None
    devices: Sequence[str] | None = None
    """Lane ids."""
    slots: Sequence[str] | None = None
    """Slot names in the run's order."""
    embargo: int | None = None
    """Steps for which a slot stays embargoed after a prune."""
    blueprints: Mapping[str, str] | None = None
    """Blueprint id to its two-letter code."""
    words: WordTables | None = None
    """What the codes of `run.rollout` count into."""
    metric: MetricInfo | None = None
    preset: str | None = None
    """Whose limits judge this run: `ppo`, `ppo-continuous`, `grpo` or `esper`; else `OVERWATCH_PRESET`, else
    `ppo`."""
    updates: int | None = None
    batches: int | None = None
    modes: Mapping[str, object] | None = None
    """`amp`, `compile`, `ddp`."""
    endpoint: str | None = None
    """OTLP endpoint; else `OTEL_*`, else the collector found on this machine."""
    role: str = "trainer"
    rank: int | None = None
    """Else the launcher's, else 0."""
    group: str | None = None
    """The arm of a comparison, e.g. `baseline`; else `OVERWATCH_GROUP`."""
    env_offset: int | None = None
    """Added to every env number of this process; else rank × n_envs where there are several ranks."""
    sample: bool = True
    """Sample GPUs and host of this machine."""
    quiet: bool = False
    """Print nothing on the error stream, neither at the start nor at the end; as `OVERWATCH_QUIET=1`."""


def begin(options: Options) -> Run:
    """A run that sends, or one that sends nothing where telemetry is off or cannot start."""
    try:
        return _begin(options)
    except Exception as error:  # noqa: BLE001 the border: telemetry must not end a training
        log.warning("telemetry is off: %s: %s", type(error).__name__, text(error, MAX_REASON))
        return Run("run", None, None)


def _begin(options: Options) -> Run:
    who = identity.identify(
        accepted("run_id", options.run_id, text),
        accepted("task", options.task, text),
        rank=accepted("rank", options.rank, count),
        group=accepted("group", options.group, text),
    )
    started, endpoint = _started(options, who), accepted("endpoint", options.endpoint, url)
    words = _words(options, started)
    sample, role = accepted("sample", options.sample, bool), accepted("role", options.role, text)
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Run(who.run_id, None, started.n_envs)
    if endpoint is None and options.endpoint is not None:
        log.warning("telemetry is off: it would go elsewhere than to the endpoint that was meant")
        return Run(who.run_id, None, started.n_envs)
    quiet = is_quiet(accepted("quiet", options.quiet, bool), who.rank)
    hello = Hello(
        run_id=who.run_id,
        join=who.join,
        role=text(role or "trainer", 64),
        rank=who.rank,
        epoch=str(uuid.uuid4()),
        pid=os.getpid(),
        endpoint=endpoint,
        otlp_env=otlp_env(),
        env=run_env(),
        folder=_folder(),
        is_daemon=exits.is_daemon(),
        sample=sample is not False,
        quiet=quiet,
        started=started,
        words=words,
    )
    terminal = None if quiet else Terminal(who.run_id, endpoint)
    try:
        link = Link(hello, LIMITS)
    except Exception as error:  # noqa: BLE001 as of `begin`
        log.warning("telemetry is off: %s: %s", type(error).__name__, text(error, MAX_REASON))
        return Run(who.run_id, None, started.n_envs)
    if terminal is not None:
        terminal.started()
    return Run(who.run_id, link, started.n_envs, started.judged_by, terminal, words=hello.words)


def _words(options: Options, started: RunStarted) -> WordTables | None:
    """The tables of words with the names that the run has given besides; `None` where there are none."""
    tables = accepted("words", options.words, word_tables) or WordTables()
    slots, blueprints = tables.slots or started.slots, tables.blueprints or tuple(started.blueprints)
    found = msgspec.structs.replace(tables, slots=slots, blueprints=blueprints)
    return None if found == WordTables() else found


def _folder() -> bytes | None:
    """The working folder, if it was not removed."""
    try:
        return os.fsencode(Path.cwd())
    except OSError:
        return None


def _started(options: Options, who: identity.Identity) -> RunStarted:
    modes = accepted("modes", options.modes, mapping) or {}
    task, algo = accepted("task", options.task, text), accepted("algo", options.algo, text)
    n_envs = accepted("n_envs", options.n_envs, count)
    devices = accepted("devices", options.devices, names) or ()
    config = accepted("config", options.config, identity.config_text, is_shown=False)
    offset = accepted("env_offset", options.env_offset, count)
    return RunStarted(
        at=time.time_ns(),
        task=task,
        algo=algo,
        reward_mode=accepted("reward_mode", options.reward_mode, text),
        n_envs=n_envs,
        devices=devices,
        lanes=torch_lanes(devices),
        slots=accepted("slots", options.slots, names) or (),
        embargo=accepted("embargo", options.embargo, count),
        blueprints=accepted("blueprints", options.blueprints, codes) or {},
        metric=accepted("metric", options.metric, metric),
        preset=accepted("preset", options.preset, parse_preset) or _wanted_preset(algo),
        updates=accepted("updates", options.updates, count),
        batches=accepted("batches", options.batches, count),
        amp=accepted("modes['amp']", modes.get("amp"), text_if_set),
        compile=accepted("modes['compile']", modes.get("compile"), bool),
        ddp=accepted("modes['ddp']", modes.get("ddp"), count),
        world_size=who.world_size,
        attempt=who.attempt,
        group=who.group,
        env_offset=_env_offset(n_envs, who) if offset is None else offset,
        config=_with_max_entropy(config or {}),
    )


def _with_max_entropy(config: dict[str, str]) -> dict[str, str]:
    """The configuration with the entropy of a uniform choice in nats, where it counts the actions."""
    counts = (config[name] for name in ("n_actions", "num_actions") if name in config)
    count = next((int(word) for word in counts if word.isdecimal()), 0)
    return {"max_entropy": repr(math.log(count))} | config if count > 1 else config


def _wanted_preset(algo: str | None) -> str:
    """What the environment asks for, else what suits the algorithm; a misspelt word stops no training."""
    wanted, suits = os.environ.get("OVERWATCH_PRESET", "").strip(), preset_for(algo)
    try:
        return parse_preset(wanted) if wanted else suits
    except ValueError as error:
        log.warning("OVERWATCH_PRESET: %s; %s judges this run", error, suits)
        return suits


def _env_offset(n_envs: int | None, who: identity.Identity) -> int:
    several = who.world_size is not None and who.world_size > 1
    return who.rank * n_envs if several and n_envs is not None else 0

"""Starting a run: what the trainer declares greets a new exporter process.

Rules: a disabled or impossible telemetry is a run that sends nothing, never an error; an argument that cannot
be used is left out with a warning (`arguments`); torch is found, never imported, and asked for its devices
only once it uses CUDA by itself. Must not know how a run goes on.
"""

import logging
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import msgspec

from overwatch.catalog import parse_library
from overwatch.catalog.presets import DEFAULT, parse_preset, preset_for
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
from overwatch.sdk.link import Link
from overwatch.sdk.names import Dialect
from overwatch.sdk.rollouts.columns import WordTables, word_tables
from overwatch.sdk.run import Run
from overwatch.sdk.terminal import Terminal, is_quiet
from overwatch.sdk.trainer_env import otlp_env, run_env
from overwatch.sdk.values import MAX_REASON, text

log: Final = logging.getLogger("overwatch.sdk")

_Found = TypeVar("_Found")


def start(
    *,
    run_id: str | None = None,
    task: str | None = None,
    algo: str | None = None,
    n_envs: int | None = None,
    config: object | None = None,
    reward_mode: str | None = None,
    devices: Sequence[str] | None = None,
    slots: Sequence[str] | None = None,
    embargo: int | None = None,
    blueprints: Mapping[str, str] | None = None,
    words: WordTables | None = None,
    metric: MetricInfo | None = None,
    preset: str | None = None,
    library: str | None = None,
    updates: int | None = None,
    resumed: int | None = None,
    batches: int | None = None,
    modes: Mapping[str, object] | None = None,
    endpoint: str | None = None,
    role: str = "trainer",
    rank: int | None = None,
    group: str | None = None,
    env_offset: int | None = None,
    sample: bool = True,
    quiet: bool = False,
) -> Run:
    """Start telemetry for this process.

    An argument that cannot be used is left out with a warning that names it; nothing is raised. What is left
    out is absent.

    - `run_id`: else the launcher's id, else a new one. `rank`: else the launcher's, else 0.
    - `config`: a mapping, dataclass or namespace; secrets are left out by their names.
    - `devices`: lane ids. `slots`: slot names in the run's order. `blueprints`: blueprint id to its
      two-letter code. `embargo`: steps for which a slot stays embargoed after a prune.
    - `words`: what the codes of `run.rollout` count into.
    - `preset`: whose limits judge this run, `ppo`, `ppo-continuous`, `grpo` or `esper`; else
      `OVERWATCH_PRESET`, else the one of `algo`, else `grpo` where names of GRPO come, else `ppo`.
    - `library`: whose names `run.update` is given, e.g. `sb3` or `TRL`: the library's own table comes first,
      then the catalogue's names. `none`: these alone.
    - `resumed`: updates that lie behind it, where it goes on from a checkpoint of the same run; what it
      repeats of a life before, by the numbers of updates and steps, is counted once.
    - `modes`: `amp`, `compile`, `ddp`.
    - `endpoint`: of OTLP; else `OTEL_*`, else the collector found on this machine.
    - `group`: the arm of a comparison, e.g. `baseline`; else `OVERWATCH_GROUP`.
    - `env_offset`: added to every env number of this process; else rank × n_envs where there are several
      ranks.
    - `sample`: sample GPUs and host of this machine.
    - `quiet`: print nothing on the error stream, neither at the start nor at the end; as `OVERWATCH_QUIET=1`.
    """
    given = dict(locals())
    try:
        return _begin(given)
    except Exception as error:  # noqa: BLE001 the border: telemetry must not end a training
        log.warning("telemetry is off: %s: %s", type(error).__name__, text(error, MAX_REASON))
        return Run("run", None)


def _begin(given: Mapping[str, Any]) -> Run:
    """A run that sends, or one that sends nothing where telemetry is off or cannot start."""
    taken = partial(_taken, given)
    ident = identity.identify(
        taken("run_id", text), taken("task", text), rank=taken("rank", count), group=taken("group", text)
    )
    started, endpoint, words = _started(given, ident), taken("endpoint", url), taken("words", word_tables)
    sample, role = taken("sample", bool), taken("role", text)
    dialect = Dialect(started.chosen, taken("library", parse_library))
    off = Run(ident.run_id, None, started.n_envs)
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return off
    if endpoint is None and given["endpoint"] is not None:
        log.warning("telemetry is off: it would go elsewhere than to the endpoint that was meant")
        return off
    quiet = is_quiet(taken("quiet", bool), ident.rank)
    hello = Hello(
        run_id=ident.run_id,
        join=ident.join,
        role=text(role or "trainer", 64),
        rank=ident.rank,
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
        words=_with_names(words or WordTables(), started),
    )
    terminal = None if quiet else Terminal(ident.run_id, endpoint)
    try:
        link = Link(hello)
    except Exception as error:  # noqa: BLE001 as of `start`
        log.warning("telemetry is off: %s: %s", type(error).__name__, text(error, MAX_REASON))
        return off
    if terminal is not None:
        terminal.started()
    return Run(ident.run_id, link, started.n_envs, dialect, terminal, words=hello.words)


def _with_names(tables: WordTables, started: RunStarted) -> WordTables | None:
    """The tables of words with the names that the run has given besides; `None` where there are none."""
    slots, blueprints = tables.slots or started.slots, tables.blueprints or tuple(started.blueprints)
    found = msgspec.structs.replace(tables, slots=slots, blueprints=blueprints)
    return None if found == WordTables() else found


def _folder() -> bytes | None:
    """The working folder, if it was not removed."""
    try:
        return os.fsencode(Path.cwd())
    except OSError:
        return None


def _started(given: Mapping[str, Any], ident: identity.Identity) -> RunStarted:
    taken = partial(_taken, given)
    modes = taken("modes", mapping) or {}
    algo, n_envs, devices = taken("algo", text), taken("n_envs", count), taken("devices", names) or ()
    config = accepted("config", given["config"], identity.config_text, is_shown=False)
    offset = taken("env_offset", count)
    if offset is None:
        offset = ident.rank * (n_envs or 0) if (ident.world_size or 1) > 1 else 0
    return RunStarted(
        at=time.time_ns(),
        task=taken("task", text),
        algo=algo,
        reward_mode=taken("reward_mode", text),
        n_envs=n_envs,
        devices=devices,
        lanes=torch_lanes(devices),
        slots=taken("slots", names) or (),
        embargo=taken("embargo", count),
        blueprints=taken("blueprints", codes) or {},
        metric=taken("metric", metric),
        preset=taken("preset", parse_preset) or _wanted_preset(algo),
        updates=taken("updates", count),
        resumed=taken("resumed", count),
        batches=taken("batches", count),
        amp=accepted("modes['amp']", modes.get("amp"), text_if_set),
        compile=accepted("modes['compile']", modes.get("compile"), bool),
        ddp=accepted("modes['ddp']", modes.get("ddp"), count),
        world_size=ident.world_size,
        attempt=ident.attempt,
        group=ident.group,
        env_offset=offset,
        config=with_max_entropy(config or {}),
    )


def _taken(given: Mapping[str, Any], name: str, convert: Callable[[Any], _Found]) -> _Found | None:
    """An argument of `start` as it is sent; see `accepted`."""
    return accepted(name, given[name], convert)


def with_max_entropy(config: dict[str, str]) -> dict[str, str]:
    """The configuration with the entropy of a uniform choice in nats, where it counts the actions."""
    counts = (config[name] for name in ("n_actions", "num_actions") if name in config)
    count = next((int(word) for word in counts if word.isdecimal()), 0)
    return {"max_entropy": repr(math.log(count))} | config if count > 1 else config


def _wanted_preset(algo: str | None) -> str | None:
    """What the environment asks for, else what suits the algorithm; a misspelt word stops no training."""
    wanted, suits = os.environ.get("OVERWATCH_PRESET", "").strip(), None if algo is None else preset_for(algo)
    try:
        return parse_preset(wanted) if wanted else suits
    except ValueError as error:
        log.warning("OVERWATCH_PRESET: %s; %s judges this run", error, suits or DEFAULT)
        return suits


def torch_lanes(devices: Iterable[str]) -> dict[str, str]:
    """The trainer's words by the UUID of their device, as `RunStarted.lanes` holds them."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found = {_uuid(torch, device): device for device in devices if device.startswith("cuda")}
    return {uuid: device for uuid, device in found.items() if uuid is not None}


def _uuid(torch: ModuleType, device: str) -> str | None:
    """The UUID of one device; older releases of torch have none."""
    try:
        if not torch.cuda.is_initialized():
            return None
        uuid = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
        is_hip = getattr(getattr(torch, "version", None), "hip", None) is not None
        # HIP's is sixteen letters, of which torch writes the codes.
        return f"GPU-{bytes.fromhex(uuid.replace('-', '')).decode('ascii')}" if is_hip else uuid
    except (AttributeError, AssertionError, RuntimeError, ValueError):
        return None

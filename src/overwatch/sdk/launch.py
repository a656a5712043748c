"""Starting a run: what the trainer says of itself greets a new exporter process.

Rules: a disabled or impossible telemetry is a run that sends nothing, never an error. Must not know how a
run speaks afterwards.
"""

import logging
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from overwatch.catalog.presets import parse_preset, preset_for
from overwatch.events import MetricInfo, RunStarted
from overwatch.sdk import identity
from overwatch.sdk.frames import Hello
from overwatch.sdk.link import Link, LinkLimits
from overwatch.sdk.otlp_env import otlp_env
from overwatch.sdk.run import Run
from overwatch.sdk.torchlanes import torch_lanes
from overwatch.sdk.values import maybe_text, text, whole

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

    def __post_init__(self) -> None:
        if self.endpoint is not None and not _is_url(self.endpoint):
            raise ValueError(f"endpoint {self.endpoint!r} is no URL; write e.g. http://127.0.0.1:4318")
        if self.metric is not None and not isinstance(self.metric, MetricInfo):
            raise TypeError(f"metric is a {type(self.metric).__name__}; pass overwatch.events.MetricInfo")
        if self.preset is not None:
            parse_preset(self.preset)


def _is_url(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def begin(options: Options) -> Run:
    """A run that speaks, or one that sends nothing where telemetry is off or cannot start."""
    who = identity.identify(options.run_id, options.task, rank=options.rank, group=options.group)
    run_id = who.run_id
    n_envs = None if options.n_envs is None else whole(options.n_envs)
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Run(run_id, None, n_envs)
    hello = Hello(
        run_id=run_id,
        join=who.join,
        role=text(options.role, 64),
        rank=who.rank,
        epoch=str(uuid.uuid4()),
        pid=os.getpid(),
        endpoint=options.endpoint,
        otlp_env=otlp_env(),
        sample=options.sample,
        started=_started(options, who),
    )
    try:
        link = Link(hello, LIMITS)
    except (OSError, RuntimeError) as error:
        log.warning("telemetry is off: %s", error)
        return Run(run_id, None, n_envs)
    return Run(run_id, link, n_envs, hello.started.judged_by)


def _started(options: Options, who: identity.Identity) -> RunStarted:
    modes = options.modes or {}
    amp, ddp, compiled = modes.get("amp"), modes.get("ddp"), modes.get("compile")
    return RunStarted(
        at=time.time_ns(),
        task=maybe_text(options.task),
        algo=maybe_text(options.algo),
        reward_mode=maybe_text(options.reward_mode),
        n_envs=None if options.n_envs is None else whole(options.n_envs),
        devices=tuple(text(lane) for lane in options.devices or ()),
        lanes=torch_lanes(text(lane) for lane in options.devices or ()),
        slots=tuple(text(slot) for slot in options.slots or ()),
        embargo=None if options.embargo is None else whole(options.embargo),
        blueprints={text(key): text(code) for key, code in (options.blueprints or {}).items()},
        metric=options.metric,
        preset=options.preset or _wanted_preset(maybe_text(options.algo)),
        updates=None if options.updates is None else whole(options.updates),
        batches=None if options.batches is None else whole(options.batches),
        amp=maybe_text(amp) if amp else None,
        compile=None if compiled is None else bool(compiled),
        ddp=None if ddp is None else whole(ddp),
        world_size=who.world_size,
        attempt=who.attempt,
        group=who.group,
        env_offset=_env_offset(options, who),
        config=_with_max_entropy(identity.config_text(options.config)),
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


def _env_offset(options: Options, who: identity.Identity) -> int:
    if options.env_offset is not None:
        return whole(options.env_offset)
    several = who.world_size is not None and who.world_size > 1
    return who.rank * whole(options.n_envs) if several and options.n_envs is not None else 0

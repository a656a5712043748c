"""The configuration of a learner and its actors: one validated object from a file, an orchestrator and flags.

Owns the names, defaults and bounds of what decides a run; where its services are is not part of it. Rules:
what is given last comes first: flags, the orchestrator's payload, the file, the preset of the world. A value
that cannot be used is an error with its path, the value and what it may be, before anything starts. Must not
know how anything of it is used.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from overwatch_rl.algorithms.recovery import RecoveryConfig
from overwatch_rl.algorithms.table import ALGORITHMS, AlgorithmConfig, Kind, kind_of
from overwatch_rl.config import device_named, preset_of
from overwatch_rl.orchestrator.commands import TUNABLES
from overwatch_rl.replay.base import TableConfig
from overwatch_rl.resume import hash_of
from overwatch_rl.training.replayed import table_of
from overwatch_rl.worlds import is_shaped

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Batching(Section):
    """What an update learns from."""

    steps: int = Field(ge=1, le=65_536)
    """T: steps of each environment."""
    envs: int = Field(ge=1, le=65_536)
    """N: lanes of an update; an actor steps as many environments where nothing else is set."""
    max_age: int | None = Field(default=8, ge=0, le=1_000)
    """Updates by which experience may be behind; older is dropped. `null` for any."""
    abandoned: Literal["weighted", "dropped"] = "weighted"
    """What happens to experience of a line that ended with a crash."""
    prefetch: int = Field(default=4, ge=1, le=64)
    """Batches of `ahead` that wait in the learner rather than in replay, but for one."""
    ahead: int = Field(default=1, ge=0, le=64)
    """Batches that wait for the learner until actors pause, and by which one actor may be ahead of its
    updates; 0 takes turns."""
    patience_s: Seconds = 5.0
    """So long an actor that is ahead waits for newer weights; then it collects with those it has."""


class Checkpointing(Section):
    """When a checkpoint is written: after so many steps, or so long, whichever comes first."""

    every_steps: int | None = Field(default=None, ge=1)
    """Env steps; `null` for those of ten updates."""
    every_minutes: float | None = Field(default=None, gt=0, le=1_440)
    keep: int = Field(default=3, ge=1, le=1_000)
    """Newest that stay, beside the best."""
    compress: bool = False
    """Whether files are compressed by zstd."""


class Distribution(Section):
    """How weights reach actors."""

    every_s: float = Field(default=0.0, ge=0, le=3_600)
    """At least so long between two versions."""
    keep: int = Field(default=4, ge=2, le=1_000)
    """Newest versions that stay."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of matrices; actors act with what is published, so bfloat16 makes experience slightly off policy."""
    encoding: Literal["safetensors"] = "safetensors"
    """Of artifacts."""


class LearnerConfig(Section):
    """What decides a run."""

    world: str = "goodhart:small"
    settings: dict[str, str | int | float | bool] = {}
    """Of the world."""
    algorithm: str = "ppo"
    """A row of `algorithms.table`."""
    ppo: dict[str, Any] = {}
    """Fields of the algorithm's configuration; what is left out is the preset's of the world."""
    dqn: dict[str, Any] = {}
    """As `ppo`; those of an algorithm that is not chosen are empty."""
    batch: Batching
    checkpoint: Checkpointing = Checkpointing()
    weights: Distribution = Distribution()
    recovery: RecoveryConfig = RecoveryConfig()
    """What happens when numbers are not finite."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    device: str = "cpu"
    threads: int = Field(default=1, ge=1, le=1_024)
    """Of torch's arithmetic in the learner; actors have one each."""
    heartbeat_s: float = Field(default=15.0, ge=5, le=45)
    """Between two heartbeats to the orchestrator, which calls a run stale after 45 s."""
    pause_after_s: Seconds = 60.0
    """So long replay may be away until the learner pauses."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Checks that need more than one value."""
        learned, kind, path = self.learned, self.kind, self.kind.option
        for name in sorted(kind.tunable):
            value, bounds = getattr(learned, name), TUNABLES[name]
            if not bounds.includes(value):
                raise ValueError(f"{path}.{name} is {value:g}; use a value in {bounds}")
        if kind.has_memory(learned):
            name = cast("Any", learned).network
            raise ValueError(
                f"{path}.network is {name!r}, whose memory experience does not hold; use a network without, "
                "or `overwatch-rl train`, which acts and learns in one process"
            )
        bound = kind.rows_at_least
        if bound is not None and (least := getattr(learned, bound)) > self.rows:
            raise ValueError(f"{path}.{bound} is {least}; batch.steps x batch.envs are only {self.rows} rows")
        if kind.is_replayed:
            for name in _LEASED:
                value, usual = getattr(self.batch, name), Batching.model_fields[name].default
                if value != usual:
                    raise ValueError(f"batch.{name} is {value}; {path} samples from a table; leave it out")
            self.table("experience")
        device_named(self.device)
        return self

    @property
    def kind(self) -> Kind:
        """The row of the algorithm."""
        return kind_of(self.algorithm)

    @property
    def learned(self) -> AlgorithmConfig:
        """The algorithm's own configuration."""
        return TypeAdapter(self.kind.config).validate_python(getattr(self, self.kind.option))

    def table(self, name: str) -> TableConfig | None:
        """The table of replay that the algorithm samples; `None` of one that leases what comes, once."""
        if not self.kind.is_replayed:
            return None
        try:
            return table_of(name, cast("Any", self.learned), self.seed, rows=self.rows)
        except ValueError as error:
            raise ValueError(f"{self.kind.option}.{error}") from error

    @property
    def depth(self) -> int:
        """Batches that are fetched ahead."""
        return min(self.batch.prefetch, max(0, self.batch.ahead - 1))

    @property
    def queue(self) -> int:
        """Steps in replay from which on actors pause: of one batch at least, or none could be fetched."""
        return max(1, self.batch.ahead - self.depth) * self.rows

    @property
    def lead(self) -> int:
        """Env steps that one actor may be ahead of the updates of its weights."""
        table = self.table("experience")
        first = self.rows if table is None else table.rate.min_steps
        return first + self.batch.ahead * self.rows

    @property
    def world_settings(self) -> dict[str, object]:
        """For the world; one that is shaped by a potential is given the learner's discount."""
        own: dict[str, object] = dict(self.settings)
        return own | {"gamma": self.learned.gamma} if is_shaped(self.world) else own

    @property
    def rows(self) -> int:
        """Env steps of a batch."""
        return self.batch.steps * self.batch.envs

    def kept(self) -> dict[str, object]:
        """As it lies in checkpoints: with what `overwatch-rl evaluate` and its kind read there."""
        own = self.model_dump(mode="json")
        return {
            "world": self.world,
            "envs": self.batch.envs,
            "settings": self.world_settings,
            self.algorithm: asdict(self.learned),
            "steps": self.batch.steps,
            "seed": self.seed,
            "updates": None,
            "learner": {name: own[name] for name in _LEARNERS},
            "system": {
                "device": self.device,
                "threads": self.threads,
                "torch": str(torch.__version__),
                "cpu": torch.backends.cpu.get_cpu_capability(),
            },
        }

    @property
    def hash(self) -> str:
        """Of what decides the numbers of a run."""
        return hash_of(self.kept())


_LEASED: Final = ("max_age", "abandoned", "prefetch")
"""Of a batch, what has a meaning only where experience is leased and used once."""
_LEARNERS: Final = ("algorithm", "batch", "checkpoint", "weights", "recovery", "heartbeat_s", "pause_after_s")


def learner_config(*given: Mapping[str, Any]) -> LearnerConfig:
    """From several sources, of which a later one comes before an earlier; `ValueError` with paths."""
    merged: dict[str, Any] = {}
    for one in given:
        merged = _merged(merged, one)
    name = str(merged.get("algorithm", LearnerConfig.model_fields["algorithm"].default))
    kind = kind_of(name)
    option = kind.option
    preset = preset_of(str(merged.get("world", LearnerConfig.model_fields["world"].default)), name)
    merged["batch"] = {"steps": preset.steps, "envs": preset.envs} | dict(merged.get("batch") or {})
    for other in ALGORITHMS:
        if other != option and (stray := merged.get(other)):
            path = ".".join([other, *(list(stray)[:1] if isinstance(stray, Mapping) else [])])
            raise ValueError(f"{path} is a setting of {other}, and algorithm is {name}; leave one out")
    own = merged.get(option) or {}
    try:
        _check_names(option, own, preset.learned)
        _check_names("recovery", merged.get("recovery") or {}, RecoveryConfig())
        checked = TypeAdapter(kind.config).validate_python(_merged(asdict(preset.learned), own))
        merged[option] = asdict(checked)
    except ValidationError as error:
        raise ValueError(_words(error, option)) from error
    try:
        return LearnerConfig.model_validate(merged)
    except ValidationError as error:
        raise ValueError(_words(error)) from error


def check_trace(config: LearnerConfig, trace: Path | None) -> None:
    """Raise `ValueError` where a trace of an algorithm is asked for that uses steps again and again."""
    if trace is not None and config.kind.is_replayed:
        raise ValueError(f"--trace is of steps that are used once; {config.algorithm} samples: leave it out")


def of_file(path: Path) -> dict[str, Any]:
    """What a YAML, TOML or JSON file has. Raises `ValueError` naming it."""
    readers: dict[str, Any] = {
        ".yaml": yaml.safe_load, ".yml": yaml.safe_load, ".toml": tomllib.loads, ".json": json.loads,
    }  # fmt: skip
    read = readers.get(path.suffix.lower())
    if read is None:
        raise ValueError(f"{path} is no {', '.join(readers)} file; rename it")
    try:
        found = read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} has no names at its top; write e.g. world: goodhart:small")  # noqa: TRY004 as above
    return cast("dict[str, Any]", found)


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """`after` over `before`, table by table."""
    found = dict(before)
    for name, value in after.items():
        own = found.get(name)
        found[name] = _merged(own, value) if isinstance(own, dict) and isinstance(value, Mapping) else value
    return found


def _check_names(path: str, given: object, config: object) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{path} is {given!r}; write it as a table")  # noqa: TRY004 of a configuration
    known = {one.name: getattr(config, one.name) for one in fields(cast("Any", config))}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{path}.{name} is none of its settings, which are {', '.join(sorted(known))}")
        if is_dataclass(known[name]):
            _check_names(f"{path}.{name}", value, known[name])


def _words(error: ValidationError, above: str = "") -> str:
    """Each wrong value by its path, one a line."""
    lines = []
    for one in error.errors():
        path = ".".join([*([above] if above else []), *map(str, one["loc"])])
        message = one["msg"].removeprefix("Value error, ")
        given = "" if not path or isinstance(one["input"], dict) else f" is {one['input']!r}"
        lines.append(f"{path}{given}: {message}" if path else message)
    return "\n".join(lines)

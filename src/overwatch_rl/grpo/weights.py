"""Versions of the weights in a folder, so that samplers in other processes can take them.

Rules: a version is (lineage, number), in the file's name; lineage counts resumes, number updates. A file gets
its name when it is whole, so a reader finds all of it or nothing; a reader takes the greatest version. The
newest few stay. The file's own header describes its model. Must not know the queue or how they learn.
"""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from overwatch.platform import sync_folder
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.task import TaskConfig

KEPT: Final = 4
_SUFFIX: Final = ".safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One version, loaded."""

    version: Version
    model: ModelConfig
    task: TaskConfig
    tensors: dict[str, Tensor]

    def made(self) -> Transformer:
        """The model with these weights."""
        model = Transformer(self.model, torch.Generator())
        model.load_state_dict(self.tensors)
        return model


def publish(folder: Path, version: Version, model: Transformer, task: TaskConfig) -> None:
    """Write a version and drop all but the newest few."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "model": msgspec.json.encode(asdict(model.config)).decode(),
        "task": msgspec.json.encode(asdict(task)).decode(),
    }
    partial = folder / f".{_name(version)}.{os.getpid()}"
    try:
        save_file({k: v.detach().contiguous() for k, v in model.state_dict().items()}, partial, about)
        partial.replace(folder / _name(version))
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(folder)
    for old in versions(folder)[:-KEPT]:
        (folder / _name(old)).unlink(missing_ok=True)


def versions(folder: Path) -> list[Version]:
    """Those that are there, the newest last."""
    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    found = [parse(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]
    return sorted(one for one in found if one is not None)


def newest(folder: Path, known: Version | None = None) -> Weights | None:
    """The newest weights, loaded; `None` where there are none newer than `known`."""
    for version in reversed(versions(folder)):
        if known is not None and version <= known:
            return None
        with suppress(FileNotFoundError):  # Dropped since the folder was read: a newer one is there.
            return load(folder / _name(version), version)
    return None


def load(path: Path, version: Version) -> Weights:
    """One file; raises `ValueError` when it is of something else, `FileNotFoundError` when there is none."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 not a mapping
        model = msgspec.json.decode(about["model"], type=ModelConfig)
        task = msgspec.json.decode(about["task"], type=TaskConfig)
    except (KeyError, SafetensorError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no file of weights: {error}; name the folder of a grpo run") from error
    return Weights(version=version, model=model, task=task, tensors=tensors)


def _name(version: Version) -> str:
    return f"{version}{_SUFFIX}"

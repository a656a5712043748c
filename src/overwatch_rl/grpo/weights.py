"""The newest weights in a folder, so that samplers in other processes can take them.

Rules: a version is (lineage, number), in the file's header with what describes its model; lineage counts
resumes, number updates. A file gets its name when it is whole, so a reader finds all of it or nothing. Must
not know the queue or how they learn.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from overwatch.platform import sync_folder
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.task import TaskConfig

NAME: Final = "newest.safetensors"


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
    """Write a version in the place of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"version": version, "model": asdict(model.config), "task": asdict(task)}
    about = {name: msgspec.json.encode(part).decode() for name, part in parts.items()}
    partial = folder / f".{os.getpid()}"
    try:
        save_file({k: v.detach().contiguous() for k, v in model.state_dict().items()}, partial, about)
        partial.replace(folder / NAME)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(folder)


def newest(folder: Path, known: Version | None = None) -> Weights | None:
    """The weights that are there, loaded; `None` where there are none newer than `known`.

    Raises `ValueError` when the file is of something else.
    """
    path = folder / NAME
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            version = msgspec.json.decode(about["version"], type=Version)
            if known is not None and version <= known:
                return None
            return Weights(
                version=version,
                model=msgspec.json.decode(about["model"], type=ModelConfig),
                task=msgspec.json.decode(about["task"], type=TaskConfig),
                tensors={name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118 not a mapping
            )
    except FileNotFoundError:
        return None
    except (KeyError, SafetensorError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no file of weights: {error}; name the folder of a grpo run") from error

"""A trained policy on disk: weights, and beside them what they fit.

`policy.pt` holds tensors only and is read without running code; `policy.json` holds for which world and
network. Must not know networks or worlds.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

WEIGHTS: Final = "policy.pt"
MANIFEST: Final = "policy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a policy was trained for."""

    world: str
    network: str
    updates: int
    """Updates that it had."""
    settings: dict[str, object] = field(default_factory=dict)
    """Settings of the world."""
    popart: bool = False


def save(folder: Path, weights: dict[str, Tensor], manifest: Manifest) -> Path:
    """Write both files, the manifest last: a reader finds the old pair or the new one.

    Returns the file of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{WEIGHTS}.new"
    torch.save(weights, fresh)
    fresh.replace(folder / WEIGHTS)
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    return folder / WEIGHTS


def load(folder: Path) -> tuple[dict[str, Tensor], Manifest]:
    """Read both files; raises `ValueError` when there is no policy or it cannot be read."""
    try:
        manifest = Manifest(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        weights = torch.load(folder / WEIGHTS, weights_only=True)
    except FileNotFoundError as error:
        raise ValueError(f"{folder} holds no policy; name the --out folder of a training run") from error
    except (TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / MANIFEST} cannot be read: {error}; train the policy again") from error
    return weights, manifest

"""Weights in a folder: the newest whole file is taken, and no part of one."""

from pathlib import Path

import pytest
import torch

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.task import TaskConfig
from overwatch_rl.grpo.weights import NAME, newest, publish

TASK = TaskConfig(least=2, most=2)


def model(seed: int = 0) -> Transformer:
    """Random weights."""
    config = ModelConfig(vocabulary=5, positions=4, width=8, layers=1, heads=1)
    return Transformer(config, torch.Generator().manual_seed(seed))


def test_the_greatest_version_is_taken_whole(tmp_path: Path) -> None:
    """A later lineage is newer than any number of an earlier one; the file describes its model."""
    for number, version in enumerate([(1, 9), (2, 3), (2, 10)]):
        publish(tmp_path, Version(lineage=version[0], number=version[1]), model(number), TASK)

    found = newest(tmp_path)

    assert found is not None
    assert found.version == Version(lineage=2, number=10)
    assert found.task == TASK
    assert all(
        torch.equal(value, model(2).state_dict()[name]) for name, value in found.made().state_dict().items()
    )
    assert newest(tmp_path, found.version) is None


def test_a_version_takes_the_place_of_the_one_before_and_nothing_else_lies_there(tmp_path: Path) -> None:
    """What a killed trainer was writing is no version."""
    for number in range(3):
        publish(tmp_path, Version(lineage=1, number=number), model(), TASK)

    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    (tmp_path / ".77").write_bytes(b"half")
    assert newest(tmp_path, Version(lineage=1, number=2)) is None
    assert newest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("content", [b"", b"no safetensors at all", None])
def test_a_file_of_something_else_is_refused_by_its_name(tmp_path: Path, content: bytes | None) -> None:
    """A whole file without our header too."""
    from safetensors.torch import save_file

    path = tmp_path / NAME
    if content is None:
        save_file({"a": torch.zeros(1)}, path)
    else:
        path.write_bytes(content)

    with pytest.raises(ValueError, match=r"newest\.safetensors is no file of weights"):
        newest(tmp_path)

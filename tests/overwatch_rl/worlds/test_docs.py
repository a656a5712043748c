"""The page of worlds names every world and every setting with its default."""

import dataclasses
from pathlib import Path

import pytest

from overwatch_rl.worlds import WORLDS
from overwatch_rl.worlds.goodhart.config import PARTS, GoodhartConfig
from overwatch_rl.worlds.gym import GymConfig
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig

PAGE = (Path(__file__).parents[3] / "docs" / "worlds.md").read_text(encoding="utf-8")


def word(value: object) -> str:
    """A value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("kind", [GoodhartConfig, GymConfig, MorphogenesisConfig])
def test_every_setting_stands_there_with_its_default(kind: type) -> None:
    """A row each."""
    rows = [f"| `{field.name}` | `{word(field.default)}` |" for field in dataclasses.fields(kind)]

    assert [row for row in rows if row not in PAGE] == []


def test_what_the_small_part_changes_stands_there() -> None:
    """Each setting with its value."""
    assert [name for name, value in PARTS["small"].items() if f"`{name}` {word(value)}" not in PAGE] == []


def test_every_world_stands_there() -> None:
    """By its name, alone or with the part that it needs."""
    assert [name for name in WORLDS if f"`{name}`" not in PAGE and f"`{name}:" not in PAGE] == []

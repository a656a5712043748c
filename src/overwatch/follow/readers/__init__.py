"""The formats that are read: one file and one row each, the surest first.

Rules: a format is known by what a file begins with; in a folder by the file's name first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

from overwatch.follow.base import Reader
from overwatch.follow.readers import csv, jsonl, tensorboard, wandb


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    """As `--format` takes it."""
    files: tuple[str, ...]
    """How its files are called in a folder."""
    looks_like: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is one."""
    make: Callable[..., Reader]


READERS: Final = (
    Format(name="wandb", files=("*.wandb",), looks_like=wandb.looks_like, make=wandb.WandbReader),
    Format(
        name="tensorboard",
        files=("*tfevents*",),
        looks_like=tensorboard.looks_like,
        make=tensorboard.EventReader,
    ),
    Format(
        name="jsonl",
        files=("*.jsonl", "progress.json", "result.json"),
        looks_like=jsonl.looks_like,
        make=jsonl.JsonReader,
    ),
    Format(name="csv", files=("*.csv", "*.tsv"), looks_like=csv.looks_like, make=csv.CsvReader),
)


def by_name(file: str) -> Format | None:
    """The format of a file by its name; `None` where it is none."""
    return next((one for one in READERS if any(fnmatch(file, name) for name in one.files)), None)


def by_head(head: bytes) -> Format | None:
    """The format of a file by its first bytes; `None` where it is none."""
    return next((one for one in READERS if one.looks_like(head)), None)

"""The options of a command from the model of its configuration: type, default, bounds and help of each."""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from overwatch_rl.cli.common import C, Number


def options_of(model: type[BaseModel]) -> Callable[[C], C]:
    """Give a command an option for each field of a model, in their order."""

    def decorate(command: C) -> C:
        """Add the options from the last to the first."""
        for name, field in reversed(model.model_fields.items()):
            flag = f"--{name.replace('_', '-')}"
            is_switch = field.annotation is bool
            command = click.option(
                f"{flag}/--no-{flag[2:]}" if is_switch else flag,
                type=_type(field),
                default=None if field.is_required() else field.default,
                show_default=field.default is not None,
                help=field.description,
            )(command)
        return command

    return decorate


def _type(field: FieldInfo) -> Any:
    kind: Any = field.annotation
    bounds = {
        name: getattr(each, name)
        for each in field.metadata
        for name in ("ge", "gt", "le")
        if hasattr(each, name)
    }
    if kind is int:
        return click.IntRange(bounds.get("ge"), bounds.get("le"))
    if kind is float:
        return Number(bounds.get("ge", bounds.get("gt")), bounds.get("le"), min_open="gt" in bounds)
    if kind is Path:
        return click.Path(path_type=Path, file_okay=False)
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if get_origin(kind) is types.UnionType and Path in get_args(kind):
        return click.Path(path_type=Path, dir_okay=False, exists=True)
    return bool if kind is bool else str

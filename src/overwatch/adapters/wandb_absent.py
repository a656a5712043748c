"""W&B's package, and what stands for its objects where it is not installed. Must not know runs."""

import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Self


class Entries(dict[str, Any]):
    """W&B's configuration or summary where W&B is not installed: keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def update(self, *args: Any, allow_val_change: bool | None = None, **kwargs: Any) -> None:  # noqa: ARG002 W&B's
        """Take entries of a mapping or a namespace."""
        super().update(*(entries_of(one) for one in args), **kwargs)

    def setdefaults(self, defaults: object) -> None:
        """Take those entries that are not there."""
        super().update(entries_of(defaults) | self)


class Nothing:
    """Stands for whatever W&B would have; every use of it does nothing."""

    def __call__(self, *_: object, **__: object) -> Self:
        """Nothing again."""
        return self

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


def entries_of(config: object) -> dict[str, Any]:
    """A mapping, or the attributes of a namespace; nothing for anything else."""
    if isinstance(config, Mapping):
        return {str(key): value for key, value in config.items()}
    return dict(vars(config)) if hasattr(config, "__dict__") else {}


def installed() -> ModuleType | None:
    """The package."""
    try:
        return importlib.import_module("wandb")
    except ImportError:
        return None

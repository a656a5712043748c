"""The packages that have a `SummaryWriter`, whichever are installed."""

import importlib
from collections.abc import Callable
from typing import Any, Final

WRITERS: Final = ("torch.utils.tensorboard", "tensorboardX")


def real_writer() -> Callable[..., Any] | None:
    """The class of whichever package is installed."""
    return next((found for name in WRITERS if (found := class_of(name)) is not None), None)


def class_of(name: str) -> Callable[..., Any] | None:
    """The real class of a package, also once `install` has taken its place; `None` without the package."""
    try:
        found: Any = importlib.import_module(name).SummaryWriter
    except ImportError:
        return None
    real: Callable[..., Any] = getattr(found, "_real", found)
    return real

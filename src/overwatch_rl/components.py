"""Components that a user brings: a world, a network or an algorithm by `package.module:name`."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def is_importable(name: str) -> bool:
    """Whether `name` is `package.module:name` of a module that there is, here or installed."""
    module, colon, _ = name.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        return False
    if (here := str(Path.cwd())) not in sys.path:
        # The command's own folder is on the path, not the one that it is run from.
        sys.path.append(here)
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def component(name: str) -> Any:
    """What `package.module:name` names; raises `ValueError` where the module has none of this name."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        raise ValueError(f"{name}: module {module} has no {attribute!r}")
    return found

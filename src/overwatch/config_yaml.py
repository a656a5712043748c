"""YAML as configurations are written: numbers remember how they stand there, a key stands once.

Rules: what cannot be read is reported in one line with its place, without the text around it, which may be a
secret. Must not know what is configured.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import yaml

_MERGED: Final = "tag:yaml.org,2002:merge"
"""The tag of `<<`, which is no key."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a file as it is written there: where one of some words is wanted, `1.3` is a word."""

    value: int | float
    text: str


class _Loader(yaml.SafeLoader):
    """As YAML's safe loader; numbers remember how they are written."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        # Nothing is handed out half made, so what holds itself is refused and not walked through for ever.
        self.deep_construct = True

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 its parent's
        """A mapping; keys are plain, and each is there once."""
        self._once(node)
        found = super().construct_mapping(node, deep=deep)
        return {key.value if isinstance(key, Number) else key: value for key, value in found.items()}

    def _once(self, node: yaml.MappingNode) -> None:
        """Refuse a key that is there twice: of two sections one would be lost without a word."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGED:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                problem = f"the key {key_node.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key if isinstance(key, Hashable) else None)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Number:
    is_whole = node.tag.endswith(":int")
    value = loader.construct_yaml_int(node) if is_whole else loader.construct_yaml_float(node)
    return Number(value, node.value)


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _number)


def read(text: str) -> Any:
    """What a text holds, with a `Number` for each number; raises `ValueError`."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{error.problem}{at}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error

"""Settings from names and values to the config of one part, checked.

Owns how a wrong name or kind of value is reported: the value, and what to use. Must not know any part.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

C = TypeVar("C")


def configured(kind: type[C], settings: Mapping[str, object], part: str) -> C:
    """A frozen dataclass of settings of which each is a number, a flag or a word.

    Text is read as the field's type, so that flags and environment variables may be given as they are.
    Raises `ValueError` naming the setting, its value and what it may be.
    """
    return kind(**_read_all(kind, settings, part))


def changed(config: C, settings: Mapping[str, object], part: str) -> C:
    """The same config with some settings changed, by the rules of `configured`."""
    return dataclasses.replace(config, **_read_all(type(config), settings, part))  # type: ignore[type-var]  # as above


def _read_all(kind: type[C], settings: Mapping[str, object], part: str) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # a dataclass type
    unknown = sorted(set(settings) - fields)
    if unknown:
        known = ", ".join(sorted(fields)) or "none"
        raise ValueError(f"{part} has no setting {unknown[0]!r}; its settings are {known}")
    hints = get_type_hints(kind)
    return {name: _read(f"{part}.{name}", value, hints[name]) for name, value in settings.items()}


def _read(name: str, value: object, kind: Any) -> object:
    number_or_none = next((one for one in (int, float) if kind == one | None), None)
    if number_or_none is not None:
        return None if str(value).lower() == "none" else _read(name, value, number_or_none)
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        found = value if isinstance(value, bool) else words.get(str(value).lower())
        if found is None:
            raise ValueError(f"{name} is {value!r}; use true or false")
        return found
    if kind in (int, float):
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{name} is {value!r}; use {'a whole' if kind is int else 'a'} number"
            ) from error
        if not math.isfinite(number):
            raise ValueError(f"{name} is {value!r}; use a finite number")
        return number
    return value

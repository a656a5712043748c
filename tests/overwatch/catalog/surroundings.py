"""What the catalogue's rows may refer to, from the layers that know it: events and the snapshot."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from overwatch.catalog import LIBRARIES, ROWS
from overwatch.events import Event
from overwatch.snapshot import Snapshot
from tests.overwatch.catalog.checking import Surroundings, library_problems, problems


def catalog_problems() -> list[str]:
    """What is wrong with the catalogue as it is; empty when nothing is."""
    return [*problems(ROWS, surroundings()), *library_problems(LIBRARIES, ROWS)]


def surroundings() -> Surroundings:
    """What there is besides rows."""
    return Surroundings(events=event_fields(), is_field=is_field)


def event_fields() -> dict[str, frozenset[str]]:
    """Names of each event's fields, by its tag."""
    return {
        str(kind.__struct_config__.tag): frozenset(field.name for field in msgspec.structs.fields(kind))
        for kind in get_args(Event)
    }


def is_field(path: str) -> bool:
    """Whether a path from the snapshot, `*` for every entry, leads to something."""
    found: list[Any] = [Snapshot]
    for word in path.split("."):
        found = [after for kind in found for after in _step(kind, word)]
    return bool(found)


def _step(kind: Any, word: str) -> Iterator[Any]:
    """The types that one word of a path leads to."""
    if get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _step(one, word)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if word in (field.name, field.encode_name):
                yield field.type
    elif word == "*" and get_origin(kind) is dict:
        yield get_args(kind)[1]
    elif word == "*" and get_origin(kind) is tuple:
        yield get_args(kind)[0]

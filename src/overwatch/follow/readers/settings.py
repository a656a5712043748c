"""Settings of a run in TensorBoard's event files: of the dashboard of hyperparameters, and of texts.

Rules: a text is read where its tag declares settings, as a table of Markdown with two columns or as
an object of JSON; what is neither has none. Must not know scalars.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from overwatch.follow.base import flat
from overwatch.follow.readers.fields import fields, floating, text

MARKS: Final = (b"_hparams_/", b"/text_summary")
"""A value of a summary without one of these in its tag holds no settings."""
TAGS: Final = frozenset(
    {"args", "arguments", "cfg", "config", "hparams", "hyperparameters", "hyperparams", "parameters",
     "params", "settings"}
)  # fmt: skip
_SESSION: Final = "_hparams_/session_start_info"
_TEXT: Final = "/text_summary"
_START: Final = 3
"""`session_start_info` of `HParamsPluginData`."""
_NUMBER, _STRING, _BOOL = 2, 3, 4
"""Fields of `google.protobuf.Value`."""


def settings_of(value: bytes) -> dict[str, str]:
    """Those in a `Summary.Value`. Raises `ValueError`."""
    found = dict(fields(value))
    tag, tensor, metadata = text(found.get(1, b"")), found.get(8, b""), found.get(9, b"")
    if tag == _SESSION and isinstance(metadata, bytes):
        return dict(_of_session(metadata))
    if tag.removesuffix(_TEXT).rpartition("/")[2].lower() in TAGS and isinstance(tensor, bytes):
        return _of_text(text(dict(fields(tensor)).get(8, b"")))
    return {}


def _of_session(metadata: bytes) -> Iterator[tuple[str, str]]:
    plugin = _inner(_inner(metadata, 1), 2)
    for field, entry in fields(_inner(plugin, _START)):
        if field == 1 and isinstance(entry, bytes):
            item = dict(fields(entry))
            yield text(item.get(1, b"")), _word(_inner(entry, 2))


def _inner(message: bytes, number: int) -> bytes:
    found = dict(fields(message)).get(number, b"")
    return found if isinstance(found, bytes) else b""


def _word(value: bytes) -> str:
    for field, one in fields(value):
        if field == _NUMBER:
            number = floating(one, "<d")
            return str(int(number)) if number.is_integer() else repr(number)
        if field == _STRING:
            return text(one)
        if field == _BOOL:
            return str(bool(one))
    return "None"


def _of_text(found: str) -> dict[str, str]:
    lines = [line.strip() for line in found.split("\n")]
    rows = [line.strip("|").split("|", 1) for line in lines if line.startswith("|")]
    # The first two are the head of the table and the line below it.
    if rows:
        return {row[0].strip(): row[1].strip() for row in rows[2:] if len(row) == 2}
    with contextlib.suppress(ValueError):
        given = json.loads(found.strip().strip("`").removeprefix("json"))
        return {name: str(one) for name, one in flat(given).items()} if isinstance(given, dict) else {}
    return {}

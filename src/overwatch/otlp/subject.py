"""What a metric point speaks of: the ids that its row's scope asks for. Pure.

Must not know values, times or producers.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from overwatch import catalog
from overwatch.catalog import Scope
from overwatch.events import Column
from overwatch.otlp import wire
from overwatch.otlp.value import Value, as_whole, as_word

Subject: TypeAlias = tuple[int | str, ...]
"""Ids of what a point speaks of; of an env its id and, where the point names one, its lane."""

NEEDS: Final = {
    Scope.ENV: f"{wire.ENV_ID} (an integer)",
    Scope.SLOT: f"{wire.ENV_ID} (an integer) and {wire.SLOT_ID}",
    Scope.GPU: f"{wire.LANE_ID} or hw.id",
}
"""What the points of a scope must name, for a person."""

_TOTALS: Final = {"system.memory.usage": ("system.memory.state", "used")}
"""Host rows that come split by an attribute, and the part that is meant."""
_SPLITS: Final = frozenset(
    {
        "cpu", "cpu.mode", "cpu.logical_number", "state", "system.memory.state", "device", "mountpoint",
        "system.device", "system.filesystem.mountpoint",
    }
)  # fmt: skip
"""Attributes of parts: one core, one state, one of several disks of which none is known as the run's own."""


def subject_of(scope: Scope, attributes: Mapping[str, Value]) -> Subject | None:
    """What a point speaks of; `()` where its scope has one subject, `None` when it does not say."""
    if scope is Scope.GPU:
        lane = _word(attributes.get(wire.LANE_ID)) or _word(attributes.get("hw.id"))
        return None if lane is None else (lane,)
    if scope not in (Scope.ENV, Scope.SLOT):
        return ()
    env_id = as_whole(attributes.get(wire.ENV_ID))
    if env_id is None:
        return None
    if scope is Scope.ENV:
        lane = _word(attributes.get(wire.LANE_ID))
        return (env_id, lane) if lane else (env_id,)
    slot = _word(attributes.get(wire.SLOT_ID))
    return None if slot is None else (env_id, slot)


def _word(value: Value) -> str | None:
    """Text, of which the beginning counts: a resource says it once, for all of its points."""
    word = as_word(value)
    return None if word is None else word[: wire.LONGEST_ID]


def is_meant(row: catalog.Metric, attributes: Mapping[str, Value]) -> bool:
    """Whether a point of the row's name is what the row asks: not a part, not another device's."""
    if any(attributes.get(name, value) != value for name, value in row.attributes.items()):
        return False
    if row.scope is not Scope.HOST:
        return True
    part = _TOTALS.get(row.name)
    if part is not None and attributes.get(part[0]) == part[1]:
        return True
    return not _SPLITS & attributes.keys()


def keys_of(scope: Scope, subjects: Sequence[Subject]) -> dict[str, Column]:
    """The ids of subjects as a measurement's keys."""
    match scope:
        case Scope.GPU:
            return {"gpu_id": Column.of_labels([str(subject[0]) for subject in subjects])}
        case Scope.ENV:
            return {"env_id": Column.of([int(subject[0]) for subject in subjects])}
        case Scope.SLOT:
            return {
                "env_id": Column.of([int(subject[0]) for subject in subjects]),
                "slot": Column.of_labels([str(subject[1]) for subject in subjects]),
            }
        case _:
            return {}

"""Lanes are GPUs, by UUID: which GPUs the trainer sees, and which of them it calls `cuda:0`.

Rules: the order in which CUDA numbers devices is followed, never guessed; where it is not certain, a name of
the trainer stays its own lane on this machine (`cuda:0@node`), joined to no GPU. Pure; must not know how GPUs
are found or read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

import msgspec

from overwatch.catalog import Scope
from overwatch.events import Column, Event, Measured, RunStarted

_T = TypeVar("_T")
_CUDA: Final = re.compile(r"cuda(?::(\d+))?")
_NUMBER: Final = re.compile(r"[+-]?\d+")
_BARE_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
GPU_PREFIX: Final = "GPU-"
MIG_PREFIX: Final = "MIG-"


class Numbering(Enum):
    """Whose number a GPU's `index` is."""

    DRIVER = "driver"
    """CUDA's differs where models differ, and goes by the bus."""
    HIP = "hip"
    """Programs see it by this number."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of this machine."""

    uuid: str
    model: str = ""
    pci: str = ""
    """Bus id; GPUs are ordered by it."""
    index: int = 0
    """The driver's own number, or HIP's."""
    numbering: Numbering = Numbering.DRIVER
    partitioned: bool = False
    """Split by MIG: programs see its parts."""
    parts: tuple[str, ...] = ()
    """UUIDs of its MIG devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A GPU, or a part of one, that the run can use."""

    id: str
    label: str
    """What the trainer calls it, `cuda:0`; where that is not certain, the driver's own number, `gpu0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleDevices:
    """The GPUs that a process sees."""

    lanes: tuple[Lane, ...] = ()
    certain: bool = True
    """Whether the labels are CUDA's own numbers."""


def visible_devices(gpus: Sequence[Gpu], env: Mapping[str, str]) -> VisibleDevices:
    """What CUDA or HIP shows of `gpus` to a process with this environment."""
    if any(gpu.numbering is not Numbering.DRIVER for gpu in gpus):
        return _by_hip(gpus, env)
    ordered = sorted(gpus, key=lambda gpu: (gpu.pci, gpu.index))
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    by_bus = env.get("CUDA_DEVICE_ORDER", "") == "PCI_BUS_ID"
    in_order = by_bus or len({gpu.model for gpu in gpus}) <= 1
    split = any(gpu.partitioned for gpu in gpus)
    if chosen is None:
        return _numbered(ordered) if in_order and not split else _unnumbered(ordered)
    words = [word.strip() for word in chosen.split(",")]
    if words[0].startswith((GPU_PREFIX, MIG_PREFIX)):
        return _by_uuid(words, ordered)
    places = _until_invalid(_place(word, len(ordered)) for word in words)
    if not in_order or split:
        return _unnumbered(ordered if places else [])
    return _numbered([ordered[place] for place in places])


def _by_hip(gpus: Sequence[Gpu], env: Mapping[str, str]) -> VisibleDevices:
    """ROCr chooses among all, then HIP among those; a choice by anything but numbers is not followed."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.index, gpu.pci))
    is_certain = all(gpu.numbering is Numbering.HIP for gpu in gpus)
    by_hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in env else "CUDA_VISIBLE_DEVICES"
    for name in ("ROCR_VISIBLE_DEVICES", by_hip):
        words = [word.strip() for word in env[name].split(",")] if name in env else None
        if words is None:
            continue
        if not is_certain or words[0].startswith(GPU_PREFIX):
            return _unnumbered(ordered)
        ordered = [ordered[place] for place in _until_invalid(_place(word, len(ordered)) for word in words)]
    return _numbered(ordered) if is_certain else _unnumbered(ordered)


def _numbered(gpus: Sequence[Gpu]) -> VisibleDevices:
    return VisibleDevices(
        lanes=tuple(Lane(id=gpu.uuid, label=f"cuda:{place}") for place, gpu in enumerate(gpus))
    )


def _unnumbered(gpus: Sequence[Gpu]) -> VisibleDevices:
    lanes = [
        Lane(id=uuid, label=f"gpu{gpu.index}" if len(uuids) == 1 else f"gpu{gpu.index}.{part}")
        for gpu in gpus
        for uuids in [gpu.parts if gpu.partitioned and gpu.parts else (gpu.uuid,)]
        for part, uuid in enumerate(uuids)
    ]
    return VisibleDevices(lanes=tuple(lanes), certain=not gpus)


def _by_uuid(words: Sequence[str], gpus: Sequence[Gpu]) -> VisibleDevices:
    """Devices chosen by UUID or the start of one; of MIG devices CUDA shows the first that is named."""
    if words[0].startswith(MIG_PREFIX):
        known = [part for gpu in gpus for part in gpu.parts]
        found = _until_invalid(_match(word, known, MIG_PREFIX) for word in words)[:1]
        return VisibleDevices(lanes=tuple(Lane(id=uuid, label="cuda:0") for uuid in found))
    whole = {gpu.uuid: gpu for gpu in gpus}
    uuids = _until_invalid(_match(word, list(whole), GPU_PREFIX) for word in words)
    picked = [whole[uuid] for uuid in uuids]
    return _unnumbered(picked) if any(gpu.partitioned for gpu in picked) else _numbered(picked)


def _place(word: str, count: int) -> int | None:
    """The number that a word begins with, as CUDA reads it; `None` where it names no device."""
    number = _NUMBER.match(word)
    place = -1 if number is None else int(number.group())
    return place if 0 <= place < count else None


def _match(word: str, uuids: Sequence[str], prefix: str) -> str | None:
    """The one UUID that begins with `word`."""
    found = [uuid for uuid in uuids if word.startswith(prefix) and uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def _until_invalid(entries: Iterable[_T | None]) -> list[_T]:
    """As CUDA does: the list ends at the first entry that names no device; one named twice hides all."""
    kept: list[_T] = []
    for entry in entries:
        if entry is None:
            break
        if entry in kept:
            return []
        kept.append(entry)
    return kept


class LaneMap:
    """The trainer's names of devices as lane ids that are true on every machine."""

    def __init__(self, seen: VisibleDevices, node: str, reported: Mapping[str, str] | None = None) -> None:
        """`reported` holds lane ids by the trainer's names, where the trainer itself knows them."""
        named = {lane.label: lane.id for lane in seen.lanes} if seen.certain else {}
        self._node = node
        self._ids = {lane.id for lane in seen.lanes}
        self._labels = {lane: label for label, lane in named.items()}
        self._named = {**named, **{label: self._uuid(lane) for label, lane in (reported or {}).items()}}

    def lane(self, name: str) -> str:
        """The lane id of a trainer's word: `cuda:1` becomes a UUID; `cpu` and names of its own stay."""
        known = self._named.get(name)
        if known is not None:
            return known
        device = _CUDA.fullmatch(name)
        if device is None:
            return self._uuid(name)
        if device.group(1) is None and len(self._named) == 1:
            return next(iter(self._named.values()))
        return f"{name}@{self._node}"

    def translate(self, event: Event) -> Event:
        """The event with lane ids for the trainer's words; an event without lanes is itself."""
        match event:
            case RunStarted():
                return self._start(event)
            case Measured(scope=Scope.ENV) if "lane" in event.values:
                values = {**event.values, "lane": self._column(event.values["lane"])}
                return msgspec.structs.replace(event, values=values)
            case Measured(scope=Scope.GPU) if "gpu_id" in event.keys:
                keys = {**event.keys, "gpu_id": self._column(event.keys["gpu_id"])}
                return msgspec.structs.replace(event, keys=keys)
            case _:
                return event

    def _start(self, event: RunStarted) -> RunStarted:
        """Lane ids with what they are called: the trainer's word, or CUDA's where the trainer sent a UUID."""
        named = {self.lane(name): name for name in reversed(event.devices)}
        called = {
            lane: self._labels.get(lane, lane) if lane == name else name for lane, name in named.items()
        }
        return msgspec.structs.replace(
            event,
            devices=tuple(dict.fromkeys(self.lane(name) for name in event.devices)),
            lanes={lane: name for lane, name in called.items() if name != lane},
        )

    def _column(self, column: Column) -> Column:
        if column.labels is None:
            return column
        return msgspec.structs.replace(column, labels=tuple(self.lane(word) for word in column.labels))

    def _uuid(self, name: str) -> str:
        """A UUID as the driver writes it: torch leaves its beginning out."""
        if _BARE_UUID.fullmatch(name):
            whole = next((f"{p}{name}" for p in (GPU_PREFIX, MIG_PREFIX) if f"{p}{name}" in self._ids), None)
            return whole or f"{GPU_PREFIX}{name}"
        return name

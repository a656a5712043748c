"""GPUs through NVIDIA's dcgm-exporter, in place of NVML: its page of metrics, by GPU UUID.

Rules: a page is read within a size and a deadline, or not at all; a line that cannot be read is left out,
with its reason, and so is a value that DCGM leaves blank. A GPU of which only parts (MIG) are on the page is
those parts; where the whole is there too, its parts are left out. Must not know how readings are sent.
"""

import math
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from overwatch.catalog import machine
from overwatch.delivery.connection import http_request
from overwatch.sdk.exporter.gpu_sources import Reading, Unread, Xid
from overwatch.sdk.exporter.lanes import MIG_PREFIX, Gpu
from overwatch.sdk.exporter.nvml import MHZ, throttle_words

URL_VARIABLE: Final = "OVERWATCH_DCGM_URL"
MIB: Final = float(1 << 20)

_NUMBERS: Final = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (machine.UTILIZATION.name, 1.0),
    "DCGM_FI_DEV_GPU_UTIL": (machine.UTILIZATION.name, 0.01),
    "DCGM_FI_PROF_SM_ACTIVE": (machine.SM_ACTIVITY.name, 1.0),
    "DCGM_FI_DEV_FB_USED": (machine.MEMORY_USED.name, MIB),
    "DCGM_FI_DEV_GPU_TEMP": (machine.TEMPERATURE.name, 1.0),
    "DCGM_FI_DEV_POWER_USAGE": (machine.POWER.name, 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": (machine.POWER_LIMIT.name, 1.0),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": (machine.POWER_LIMIT.name, 1.0),
    "DCGM_FI_DEV_SM_CLOCK": (machine.CLOCK.name, MHZ),
    "DCGM_FI_DEV_MAX_SM_CLOCK": (machine.CLOCK_MAX.name, MHZ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (machine.ECC_UNCORRECTED.name, 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (machine.PCIE_RECEIVE.name, 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": (machine.PCIE_TRANSMIT.name, 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": (machine.NVLINK_RECEIVE.name, 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": (machine.NVLINK_TRANSMIT.name, 1.0),
}
"""Field, row and what one unit of the field is of the row's; a later field goes before an earlier one."""
_MEMORY_PARTS: Final = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
_THROTTLE: Final = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_PART: Final = "GPU_I_ID"
_FIELD: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_BLANK_32: Final = range(0x7FFFFFF0, 0x80000000)
_BLANK: Final = float(1 << 47)
"""DCGM writes "no value" as a number near the end of its type: this one of doubles is the smallest."""


class Dcgm:
    """One dcgm-exporter."""

    def __init__(self, url: str, *, deadline_s: float = 2.0, size: int = 4 << 20) -> None:
        """A page of `size` bytes at most is waited for so long. Raises `ValueError` for no HTTP address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{URL_VARIABLE}={url!r} is no page; write e.g. http://127.0.0.1:9400/metrics")
        self._host = parts.hostname
        self._url = parts._replace(path=parts.path or "/metrics").geturl()
        self._deadline_s, self._size = deadline_s, size
        self._errors: dict[str, int] = {}
        """The newest Xid of each GPU; the page keeps it for ever."""
        self._fresh: list[Xid] = []
        self.unread = Unread()

    @property
    def name(self) -> str:
        """Names its thread."""
        return "dcgm"

    def open(self) -> tuple[Gpu, ...]:
        """The GPUs on the page."""
        found: dict[str, Gpu] = {}
        parts: dict[str, dict[str, None]] = {}
        for lane, sample in self._lanes():
            uuid, index = sample.labels["UUID"], sample.labels.get("gpu", "")
            if lane != uuid:
                parts.setdefault(uuid, {})[lane] = None
            found[uuid] = Gpu(
                uuid=uuid,
                model=sample.labels.get("modelName", ""),
                pci=sample.labels.get("pci_bus_id", ""),
                index=int(index) if index.isdecimal() else found[uuid].index if uuid in found else len(found),
                partitioned=uuid in parts,
                parts=tuple(parts.get(uuid, ())),
            )
        return tuple(found.values())

    def questions(self, uuids: frozenset[str]) -> tuple["Dcgm", ...]:
        """One page holds all GPUs."""
        return (self,) if uuids else ()

    def query(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Readings of these GPUs; no page, no readings."""
        fields: dict[str, dict[str, float]] = {}
        for lane, sample in self._lanes() if uuids else ():
            value = _value(sample)
            if value is not None:
                field = sample.name.removesuffix("_total")
                fields.setdefault(lane, {})[field] = value
        for lane, known in fields.items():
            self._note_xid(lane, known)
        return {lane: _reading(known) for lane, known in fields.items() if lane in uuids}

    def xids(self) -> tuple[Xid, ...]:
        """Errors that came up on the page; one that was there from the beginning is older than this run."""
        fresh, self._fresh = self._fresh, []
        return tuple(fresh)

    def _note_xid(self, lane: str, fields: Mapping[str, float]) -> None:
        if _XID not in fields:
            return
        code = int(fields[_XID])
        before = self._errors.setdefault(lane, code)
        if code and code != before:
            self._fresh.append(Xid(uuid=lane, code=code))
        self._errors[lane] = code

    def _lanes(self) -> list[tuple[str, Sample]]:
        """Samples with the lane that each is about: a whole GPU, or its part where only parts are there."""
        samples = [sample for sample in self._samples() if sample.labels.get("UUID")]
        whole = {sample.labels["UUID"] for sample in samples if not sample.labels.get(_PART)}
        found = []
        for sample in samples:
            uuid, part = sample.labels["UUID"], sample.labels.get(_PART)
            if not part:
                found.append((uuid, sample))
            elif uuid not in whole:
                found.append((part_id(uuid, part), sample))
        return found

    def _samples(self) -> Iterator[Sample]:
        """What the lines of the page hold; none where there is no page."""
        try:
            page = self._page().decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            self.unread.note(f"the page of dcgm-exporter at {self._host}", error, f"look at {URL_VARIABLE}")
            return
        for line in page.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                yield from _of_line(line)
            except (ValueError, IndexError, KeyError) as error:
                field = _FIELD.match(line.lstrip())
                what = field.group() if field else "a line"
                self.unread.note(f"{what} on dcgm-exporter's page", f"{error} in {line.strip()!r}")

    def _page(self) -> bytes:
        """The page; raises `OSError` or `ValueError` when it is not to be had in time."""
        headers = {"accept": "text/plain"}
        reply = http_request(self._url, timeout_s=self._deadline_s, headers=headers, most=self._size, env={})
        if reply.status != HTTPStatus.OK:
            raise ValueError(f"the page answered {reply.status}")
        return reply.body


def part_id(uuid: str, part: str) -> str:
    """A part of a GPU as CUDA names it where it knows no UUID of it: by the whole and its GPU instance.

    >>> part_id("GPU-a", "7")
    'MIG-GPU-a/7/0'
    """
    return f"{MIG_PREFIX}{uuid}/{part}/0"


def _of_line(line: str) -> Iterator[Sample]:
    """The sample of one line; raises `ValueError` and the like. What follows ` # ` is an exemplar."""
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except ValueError:
        if " # " not in line:
            raise
        families = list(text_string_to_metric_families(line.rpartition(" # ")[0] + "\n"))
    for family in families:
        yield from family.samples


def _value(sample: Sample) -> float | None:
    """What a field holds; `None` where DCGM left it blank."""
    value = float(sample.value)
    blank = not math.isfinite(value) or value >= _BLANK or value < 0
    if not blank and not sample.name.startswith("DCGM_FI_PROF_"):
        blank = value in _BLANK_32
    return None if blank else value


def _reading(fields: Mapping[str, float]) -> Reading:
    numbers = {
        name: fields[field] * scale for field, (name, scale) in _NUMBERS.items() if field in fields
    }  # fmt: skip
    used, free, reserved = (fields.get(part) for part in _MEMORY_PARTS)
    if used is not None and free is not None:
        numbers[machine.MEMORY_TOTAL.name] = (used + free + (reserved or 0.0)) * MIB
    flags = next((int(fields[field]) for field in _THROTTLE if field in fields), None)
    return Reading(numbers=numbers, throttle=None if flags is None else throttle_words(flags))

"""GPUs through NVIDIA's dcgm-exporter, in place of NVML: its page of metrics, by GPU UUID.

Rules: a page is read within a size and a deadline, or not at all; a value that DCGM leaves blank is left
out; so are parts of split GPUs (MIG), as they bear the UUID of the whole. Must not know how readings are
sent.
"""

import http.client
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from overwatch.catalog.machine import (
    CLOCK,
    CLOCK_MAX,
    ECC_UNCORRECTED,
    MEMORY_TOTAL,
    MEMORY_USED,
    NVLINK_RECEIVE,
    NVLINK_TRANSMIT,
    PCIE_RECEIVE,
    PCIE_TRANSMIT,
    POWER,
    POWER_LIMIT,
    SM_ACTIVITY,
    TEMPERATURE,
    UTILIZATION,
)
from overwatch.sdk.exporter.lanes import Gpu
from overwatch.sdk.exporter.nvml import MHZ, throttle_words
from overwatch.sdk.exporter.readings import Reading, Xid

URL_VARIABLE: Final = "OVERWATCH_DCGM_URL"
MIB: Final = float(1 << 20)

_NUMBERS: Final = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (UTILIZATION.name, 1.0),
    "DCGM_FI_DEV_GPU_UTIL": (UTILIZATION.name, 0.01),
    "DCGM_FI_PROF_SM_ACTIVE": (SM_ACTIVITY.name, 1.0),
    "DCGM_FI_DEV_FB_USED": (MEMORY_USED.name, MIB),
    "DCGM_FI_DEV_GPU_TEMP": (TEMPERATURE.name, 1.0),
    "DCGM_FI_DEV_POWER_USAGE": (POWER.name, 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": (POWER_LIMIT.name, 1.0),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": (POWER_LIMIT.name, 1.0),
    "DCGM_FI_DEV_SM_CLOCK": (CLOCK.name, MHZ),
    "DCGM_FI_DEV_MAX_SM_CLOCK": (CLOCK_MAX.name, MHZ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (ECC_UNCORRECTED.name, 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (PCIE_RECEIVE.name, 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": (PCIE_TRANSMIT.name, 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": (NVLINK_RECEIVE.name, 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": (NVLINK_TRANSMIT.name, 1.0),
}
"""Field, row and what one unit of the field is of the row's; a later field goes before an earlier one."""
_MEMORY_PARTS: Final = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
_THROTTLE: Final = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_BLANK_32: Final = range(0x7FFFFFF0, 0x80000000)
_BLANK: Final = float(1 << 47)
"""DCGM writes "no value" as a number near the end of its type: this one of doubles is the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmLimits:
    """How much of a page is waited for."""

    deadline_s: float = 2.0
    """For a whole page."""
    size: int = 4 << 20
    """Largest page, bytes."""

    def __post_init__(self) -> None:
        if self.deadline_s <= 0 or self.size <= 0:
            raise ValueError(f"deadline_s {self.deadline_s} and size {self.size} of a page must be positive")


class Dcgm:
    """One dcgm-exporter."""

    def __init__(self, url: str, limits: DcgmLimits | None = None) -> None:
        """Raises `ValueError` when `url` is no HTTP address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{URL_VARIABLE}={url!r} is no page; write e.g. http://127.0.0.1:9400/metrics")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._path = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        self._limits = limits or DcgmLimits()
        self._errors: dict[str, int] = {}
        """The newest Xid of each GPU; the page keeps it for ever."""
        self._heard: list[Xid] = []

    @property
    def name(self) -> str:
        """Names its thread."""
        return "dcgm"

    def open(self) -> tuple[Gpu, ...]:
        """The GPUs on the page."""
        found: dict[str, Gpu] = {}
        for sample in self._samples():
            uuid, index = sample.labels["UUID"], sample.labels.get("gpu", "")
            found[uuid] = Gpu(
                uuid=uuid,
                model=sample.labels.get("modelName", ""),
                pci=sample.labels.get("pci_bus_id", ""),
                index=int(index) if index.isdecimal() else len(found),
            )
        return tuple(found.values())

    def questions(self, uuids: frozenset[str]) -> tuple["Dcgm", ...]:
        """One page holds all GPUs."""
        return (self,) if uuids else ()

    def ask(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Readings of these GPUs; no page, no readings."""
        fields: dict[str, dict[str, float]] = {}
        for sample in self._samples() if uuids else ():
            value = _value(sample)
            if value is not None:
                field = sample.name.removesuffix("_total")
                fields.setdefault(sample.labels["UUID"], {})[field] = value
        for uuid, known in fields.items():
            self._note_xid(uuid, known)
        return {uuid: _reading(known) for uuid, known in fields.items() if uuid in uuids}

    def xids(self) -> tuple[Xid, ...]:
        """Errors that came up on the page; one that was there from the beginning is older than this run."""
        heard, self._heard = self._heard, []
        return tuple(heard)

    def _note_xid(self, uuid: str, fields: Mapping[str, float]) -> None:
        code = int(fields.get(_XID, 0))
        before = self._errors.setdefault(uuid, code)
        if code and code != before:
            self._heard.append(Xid(uuid=uuid, code=code))
        self._errors[uuid] = code

    def _samples(self) -> Iterator[Sample]:
        """Samples about whole GPUs; none where there is no page that can be read."""
        try:
            page = self._page().decode()
            families = list(text_string_to_metric_families(page))
        except (OSError, ValueError, http.client.HTTPException):
            return
        for family in families:
            for sample in family.samples:
                if sample.labels.get("UUID") and not sample.labels.get("GPU_I_ID"):
                    yield sample

    def _page(self) -> bytes:
        """The page; raises `OSError`, `ValueError` or `HTTPException` when it is not to be had in time."""
        until = time.monotonic() + self._limits.deadline_s
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=self._limits.deadline_s)
        try:
            connection.request("GET", self._path, headers={"Accept": "text/plain"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ValueError(f"the page answered {response.status}")
            read = bytearray()
            while part := response.read1(1 << 16):
                read += part
                if len(read) > self._limits.size or time.monotonic() > until:
                    raise ValueError(f"the page is larger than {self._limits.size} bytes, or too slow")
            return bytes(read)
        finally:
            connection.close()


def _value(sample: Sample) -> float | None:
    """What a field says; `None` where DCGM left it blank."""
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
        numbers[MEMORY_TOTAL.name] = (used + free + (reserved or 0.0)) * MIB
    flags = next((int(fields[field]) for field in _THROTTLE if field in fields), None)
    return Reading(numbers=numbers, throttle=None if flags is None else throttle_words(flags))

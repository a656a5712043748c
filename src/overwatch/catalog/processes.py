"""The busiest processes of a host: how many there are, and how one is written in a line of facts.

A line of facts has one field a process, `1` the busiest: `PID CORES BYTES NAME`. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

SUBSYSTEM: Final = "host.processes"
"""Of the lines that a sampler sends about processes."""
BUSIEST: Final = 5
"""Processes of one line."""
MOST_NAME: Final = 64
"""Characters of a name that are kept."""


class Busy(NamedTuple):
    """One process."""

    pid: int
    name: str
    cpu: float
    """Cores that it keeps busy."""
    ram_bytes: float


def fields_of(busy: Iterable[Busy]) -> dict[str, str]:
    """As the fields of a line."""
    return {
        str(place): f"{one.pid} {one.cpu:.3f} {one.ram_bytes:.0f} {one.name[:MOST_NAME]}"
        for place, one in enumerate(busy, start=1)
    }


def read_fields(fields: Mapping[str, str]) -> tuple[Busy, ...]:
    """What a line reports, the busiest first; a field that cannot be read is left out."""
    read = (_read(fields.get(str(place), "")) for place in range(1, BUSIEST + 1))
    return tuple(one for one in read if one is not None)


def _read(text: str) -> Busy | None:
    pid, cpu, ram, name = [*text.split(" ", 3), "", "", "", ""][:4]
    try:
        found = Busy(int(pid), name[:MOST_NAME], float(cpu), float(ram))
    except ValueError:
        return None
    good = 0 < found.pid < 1 << 31 and 0 <= found.cpu < 1e6 and 0 <= found.ram_bytes < 1e18 and found.name
    return found if good else None

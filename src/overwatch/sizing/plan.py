"""A plan for a load: what to provide, each line with what it is for and where its number comes from."""

import math
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from overwatch.sizing import MIB, WINDOW_HZ, Load, Units, cost

WHOLE_S: Final = 600
"""`exporters.otlp_file.thinning.whole_minutes`."""
SECOND_S: Final = 6 * 3600
"""`exporters.otlp_file.thinning.second_hours`: one a second for so long, then one a minute."""
DAY_S: Final = 86_400
MOST_CORES: Final = 0.7
"""Of the one core that a collector folds with, what it may use for good: the rest is for bursts."""
MOST_RUNS: Final = 1024
"""`exporters.aggregator.max_runs`."""
MOST_SERIES: Final = 20_000
"""`exporters.prometheus.max_series`."""
JOURNAL_MIB: Final = 2048
"""`extensions.file_storage.max_size_mib`."""
RING_MIB: Final = 6
"""Of shared memory, for each rank."""
SCRAPE_S: Final = 15
SERIES_KIB: Final = 4
"""Of Prometheus's memory for a series that is live, an estimate."""
SAMPLE_BYTES: Final = 2
"""Of Prometheus's disk for a sample, an estimate."""


RECORDING_GIB: Final = 10
"""`exporters.otlp_file.budget.folder_mib`."""
GIB: Final = MIB << 10
_Row: TypeAlias = tuple[str, float, str, str]
"""Name, value, unit and assumption of a line."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to provide."""

    where: str
    """`trainers`, `network`, `collectors` or `prometheus`."""
    name: str
    value: float
    unit: str
    """`cores`, `MiB`, `bytes/s`, `GiB`, `GiB/day`, `hours` or `` for a count."""
    why: str
    """The assumption that it comes from."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    load: Load
    retention_days: float
    measured: str
    """When and on what the units were measured."""
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()

    def value(self, where: str, name: str) -> float:
        """One line's value; raises `KeyError`."""
        for line in self.lines:
            if (line.where, line.name) == (where, name):
                return line.value
        raise KeyError(f"{where} {name}")


def collectors_for(load: Load, units: Units) -> tuple[int, str]:
    """How many collectors, and what decides it."""
    needs = {
        f"{MOST_CORES:g} of a core each": _grown("collector_cores", load, units)
        / (MOST_CORES - units.each["collector_cores"].get("one", 0.0)),
        f"{MOST_RUNS:,} runs each (max_runs)": load.runs / MOST_RUNS,
    }
    decides = max(needs, key=lambda name: needs[name])
    return max(1, math.ceil(needs[decides])), decides


def plan(load: Load, retention_days: float, units: Units) -> Plan:
    """What a load needs. Amounts are of all machines together, unless the name has `each`."""
    lines = [
        Line(where=where, name=name, value=value, unit=unit, why=why)
        for where, part in _PARTS.items()
        for name, value, unit, why in part(load, units, retention_days)
    ]
    return Plan(
        load=load,
        retention_days=retention_days,
        measured=units.taken,
        lines=tuple(lines),
        warnings=tuple(_warnings(load, units)),
    )


def _grown(resource: str, load: Load, units: Units) -> float:
    """What a load takes beyond an idle process."""
    return cost(resource, load, units) - units.each[resource].get("one", 0.0)


def _trainers(load: Load, units: Units, _: float) -> Iterator[_Row]:
    ranks = load.runs * load.ranks
    calls = f"{ranks:,} ranks, two calls at {load.hz:g} Hz: twelve numbers, a column of {load.envs:,} envs"
    yield "CPU of calls", cost("trainer_cores", load, units), "cores", calls
    yield "CPU of exporters", cost("exporter_cores", load, units), "cores", "one process a machine and user"
    yield "shared memory", float(RING_MIB * ranks), "MiB", f"{RING_MIB} MiB of rings a rank"


def _network(load: Load, units: Units, _: float) -> Iterator[_Row]:
    both = "both directions, HTTP heads included, without TLS"
    yield "to the collectors", cost("network_bytes", load, units), "bytes/s", both
    yield "records", cost("records", load, units), "/s", f"the SDK folds to {WINDOW_HZ:g} Hz"


def _collectors(load: Load, units: Units, days: float) -> Iterator[_Row]:
    count, decides = collectors_for(load, units)
    idle, ticks = units.each["collector_mib"]["one"], units.each["collector_cores"].get("one", 0.0)
    cores = ticks * count + _grown("collector_cores", load, units)
    memory = idle + _grown("collector_mib", load, units) / count
    journal, snapshots = cost("journal_bytes", load, units), cost("snapshot_bytes", load, units)
    yield "collectors", float(count), "", decides
    yield "CPU", cores, "cores", "receiving, journal, recording, judging each live run"
    yield "memory each", memory, "MiB", f"{idle:.0f} MiB of an idle one, its live runs and envs"
    yield "journal", journal * DAY_S / GIB, "GiB/day", "written; what was read is given back"
    held = JOURNAL_MIB * MIB * count / journal / 3600
    yield "journal holds", held, "hours", f"{JOURNAL_MIB} MiB each, for a forwarder that is behind"
    thinned = "packed, thinned by the defaults, no finding open"
    yield "recording, a day", kept_bytes(load, 1, units) / GIB, "GiB", thinned
    budget = f"{days:g} days; the default budget is {RECORDING_GIB:g} GiB each (budget.folder_mib)"
    yield "recording, retention", kept_bytes(load, days, units) / GIB, "GiB", budget
    log = "a line a second and run, before packing; held to 1 GiB each"
    yield "snapshots", snapshots * DAY_S / GIB, "GiB/day", log


def kept_bytes(load: Load, days: float, units: Units) -> float:
    """Bytes of a recording of so many days without a pause: whole, then one a second, then one a minute."""
    second = msgspec.structs.replace(load, hz=min(load.hz, 1.0))
    whole, a_second = cost("recording_bytes", load, units), cost("recording_bytes", second, units)
    took = days * DAY_S
    at_once = min(took, WHOLE_S)
    young = max(0.0, min(took, SECOND_S) - WHOLE_S)
    old = max(0.0, took - SECOND_S)
    return whole * at_once + a_second * young + a_second * old / 60


def _prometheus(load: Load, units: Units, days: float) -> Iterator[_Row]:
    series = cost("series", load, units)
    disk = series * SAMPLE_BYTES * days * DAY_S / SCRAPE_S / GIB
    yield "series", series, "", "of the page of runs; of envs only the ten worst"
    yield "memory", series * SERIES_KIB / 1024, "MiB", f"{SERIES_KIB} KiB a live series, an estimate"
    scraped = f"a scrape each {SCRAPE_S} s, {SAMPLE_BYTES} bytes a sample, an estimate"
    yield "disk, retention", disk, "GiB", scraped


_PARTS: Final = {
    "trainers": _trainers,
    "network": _network,
    "collectors": _collectors,
    "prometheus": _prometheus,
}


def _warnings(load: Load, units: Units) -> Iterator[str]:
    one = _grown("collector_cores", msgspec.structs.replace(load, runs=1), units)
    if one > MOST_CORES:
        yield f"one run takes {one:.1f} cores and stays at one collector: send less often, or fewer envs"
    each = cost("series", load, units) / collectors_for(load, units)[0]
    if each > MOST_SERIES:
        yield f"{each:,.0f} series a collector: raise exporters.prometheus.max_series ({MOST_SERIES:,})"

"""Machines, as a view may know them: lanes, the host, and what holds them back."""

import msgspec


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a machine back, and why we think so."""

    state: str
    why: str | None = None
    hint: str | None = None
    confidence: float | None = None
    evidence: tuple[str, ...] = ()
    mark: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that envs run on."""

    gpu_id: str
    """What the trainer calls it; with its node where several lanes are called so."""
    uuid: str | None = None
    """Its lane id, where that is not what it is called."""
    node: str | None = None
    """Host name of the machine it is part of."""
    rank: int | None = None
    utilization: float | None = None
    utilization_history: tuple[float | None, ...] = ()
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    throttle: tuple[str, ...] = ()
    process_memory_bytes: float | None = None
    """What the trainer's own process holds of it."""
    pcie_receive_bytes_per_s: float | None = None
    pcie_transmit_bytes_per_s: float | None = None
    nvlink_receive_bytes_per_s: float | None = None
    nvlink_transmit_bytes_per_s: float | None = None
    ecc_uncorrected: float | None = None
    """Memory errors that could not be corrected since the driver was loaded."""
    age_s: float | None = None
    bound: Bound | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the trainer runs on."""

    cpu_utilization: float | None = None
    cpu_history: tuple[float | None, ...] = ()
    ram_used_bytes: float | None = None
    ram_total_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    loader_depth: float | None = None
    loader_capacity: float | None = None
    age_s: float | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes, the host, and the run's bound as a whole."""

    gpus: tuple[Lane, ...] = ()
    host: Host | None = None
    bound: Bound | None = None

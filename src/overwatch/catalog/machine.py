"""Rows about machines: GPU lanes (`hw.*`) and the host (`system.*`), under OpenTelemetry's names."""

from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

_ADD_UP: Final = frozenset(
    f"{what}.{part}"
    for what in ("hw.gpu.memory", "system.memory", "system.filesystem")
    for part in ("usage", "limit")
)
"""What OpenTelemetry's conventions define as an UpDownCounter."""


def _reading(name: str, short: str, unit: str, scope: Scope, asks: str, **more: str) -> Metric:
    """A machine gauge: a reading that fails is undefined, never a finding of its own."""
    constant = {"hw.type": "gpu"} if name in ("hw.temperature", "hw.power") else {}
    constant = {"system.memory.state": "used"} if name == "system.memory.usage" else constant
    constant = {"system.filesystem.state": "used"} if name == "system.filesystem.usage" else constant
    return Metric(
        name=name,
        short=short,
        kind=Kind.GAUGE,
        unit=unit,
        scope=scope,
        asks=asks,
        label=more.get("label", short[:8]),
        direction=Direction.NONE,
        non_finite=NonFinite.UNDEFINED,
        fmt=more.get("fmt", ".0f"),
        attributes=constant,
        adds_up=name in _ADD_UP,
        tele=tuple(more.get("tele", "").split()),
        feeds=tuple(more.get("feeds", "").split()),
    )


UTILIZATION: Final = _reading(
    "hw.gpu.utilization", "utilization", "1", Scope.GPU,
    "What share of the time did this GPU run a kernel?", label="util", fmt=".0%", tele="TELE-731",
    feeds="bound:compute bound:host bound:io bound:starved bound:idle",
)  # fmt: skip
SM_ACTIVITY: Final = _reading(
    "overwatch.gpu.processors.activity", "sm_activity", "1", Scope.GPU,
    "What share of this GPU's processors had work, on average?", label="sm", fmt=".0%",
    feeds="bound:compute",
)  # fmt: skip
DIP_SHARE: Final = _reading(
    "overwatch.gpu.dips.share", "dip_share", "1", Scope.GPU,
    "For what share of the newest minute was this GPU's utilisation below 50%?", label="dips", fmt=".0%",
)  # fmt: skip
DIP_LENGTH: Final = _reading(
    "overwatch.gpu.dips.length", "dip_p95_s", "s", Scope.GPU,
    "How long are 95 of 100 dips of this GPU's utilisation at most?", label="dip p95", fmt=".2f",
)  # fmt: skip
MEMORY_USED: Final = _reading(
    "hw.gpu.memory.usage", "memory_used_bytes", "By", Scope.GPU, "How much memory of this GPU is used?",
    label="mem", tele="TELE-730",
    feeds="bound:memory bound:oom_risk",
)  # fmt: skip
MEMORY_TOTAL: Final = _reading(
    "hw.gpu.memory.limit", "memory_total_bytes", "By", Scope.GPU, "How much memory has this GPU?",
    label="mem max",
    feeds="bound:memory bound:oom_risk",
)  # fmt: skip
TEMPERATURE: Final = _reading(
    "hw.temperature", "temperature_c", "Cel", Scope.GPU, "How hot is this GPU?", label="temp"
)
POWER: Final = _reading(
    "hw.power",
    "power_w",
    "W",
    Scope.GPU,
    "How much power does this GPU draw?",
    label="power",
    feeds="bound:compute bound:host",
)
POWER_LIMIT: Final = _reading(
    "overwatch.gpu.power.limit", "power_limit_w", "W", Scope.GPU,
    "How much power may this GPU draw?", label="pwr max",
    feeds="bound:compute bound:host",
)  # fmt: skip
CLOCK: Final = _reading(
    "overwatch.gpu.clock", "clock_hz", "Hz", Scope.GPU, "How fast do this GPU's processors run?",
    label="clock",
    feeds="bound:throttled",
)  # fmt: skip
CLOCK_MAX: Final = _reading(
    "overwatch.gpu.clock.limit", "clock_max_hz", "Hz", Scope.GPU,
    "How fast can this GPU's processors run?", label="clk max",
    feeds="bound:throttled",
)  # fmt: skip
THROTTLE: Final = Metric(
    name="overwatch.gpu.throttle",
    kind=Kind.STATE,
    unit="1",
    scope=Scope.GPU,
    asks="Why does this GPU run slower than it could?",
    non_finite=NonFinite.UNDEFINED,
    feeds=("bound:throttled",),
)
"""A column of words, several joined by commas: `thermal`, `power`, `thermal,power`; absent means none."""
PROCESS_MEMORY: Final = _reading(
    "overwatch.gpu.process.memory", "process_memory_bytes", "By", Scope.GPU,
    "How much memory of this GPU does the trainer's own process hold?", label="own mem", tele="TELE-770",
)  # fmt: skip
PCIE_RECEIVE: Final = _reading(
    "overwatch.gpu.pcie.receive", "pcie_receive_bytes_per_s", "By/s", Scope.GPU,
    "How fast does this GPU receive over PCIe?", label="pcie rx",
)  # fmt: skip
PCIE_TRANSMIT: Final = _reading(
    "overwatch.gpu.pcie.transmit", "pcie_transmit_bytes_per_s", "By/s", Scope.GPU,
    "How fast does this GPU send over PCIe?", label="pcie tx",
)  # fmt: skip
NVLINK_RECEIVE: Final = _reading(
    "overwatch.gpu.nvlink.receive", "nvlink_receive_bytes_per_s", "By/s", Scope.GPU,
    "How fast does this GPU receive over NVLink?", label="nvl rx",
)  # fmt: skip
NVLINK_TRANSMIT: Final = _reading(
    "overwatch.gpu.nvlink.transmit", "nvlink_transmit_bytes_per_s", "By/s", Scope.GPU,
    "How fast does this GPU send over NVLink?", label="nvl tx",
)  # fmt: skip
ECC_UNCORRECTED: Final = Metric(
    name="hw.errors",
    short="ecc_uncorrected",
    kind=Kind.COUNTER,
    unit="{error}",
    scope=Scope.GPU,
    asks="How many memory errors could this GPU not correct since its driver was loaded?",
    label="ecc",
    non_finite=NonFinite.UNDEFINED,
    fmt=".0f",
    attributes={"hw.type": "gpu", "error.type": "uncorrected"},
    feeds=("finding:ecc-uncorrectable",),
)
CPU: Final = _reading(
    "system.cpu.utilization", "cpu_utilization", "1", Scope.HOST,
    "What share of this host's CPU time is used?", label="cpu", fmt=".0%", tele="TELE-720",
)  # fmt: skip
CPU_BUSIEST: Final = _reading(
    "overwatch.host.cpu.busiest", "cpu_busiest", "1", Scope.HOST,
    "What share of its time is this host's busiest core used?", label="core", fmt=".0%",
    feeds="bound:host",
)  # fmt: skip
RAM_USED: Final = _reading(
    "system.memory.usage", "ram_used_bytes", "By", Scope.HOST, "How much memory of this host is used?",
    label="ram", tele="TELE-721",
    feeds="finding:host-memory",
)  # fmt: skip
RAM_TOTAL: Final = _reading(
    "system.memory.limit", "ram_total_bytes", "By", Scope.HOST, "How much memory has this host?",
    label="ram max",
    feeds="finding:host-memory",
)  # fmt: skip
DISK_USED: Final = _reading(
    "system.filesystem.usage", "disk_used_bytes", "By", Scope.HOST,
    "How much is used of the disk that this run's checkpoints go to?", label="disk",
    feeds="finding:disk-full",
)  # fmt: skip
DISK_TOTAL: Final = _reading(
    "system.filesystem.limit", "disk_total_bytes", "By", Scope.HOST,
    "How much may this user have of the disk that this run's checkpoints go to?", label="disk max",
    feeds="finding:disk-full",
)  # fmt: skip
DISK_READ: Final = _reading(
    "overwatch.host.disk.read", "disk_read_bytes_per_s", "By/s", Scope.HOST,
    "How fast does this host read from its disks?", label="disk r",
)  # fmt: skip
DISK_WRITE: Final = _reading(
    "overwatch.host.disk.write", "disk_write_bytes_per_s", "By/s", Scope.HOST,
    "How fast does this host write to its disks?", label="disk w",
)  # fmt: skip
NETWORK: Final = _reading(
    "overwatch.host.network", "network_bytes_per_s", "By/s", Scope.HOST,
    "How fast does this host send and receive, loopback left out?", label="net",
)  # fmt: skip

LOADER_DEPTH: Final = _reading(
    "overwatch.host.loader.depth", "loader_depth", "{batch}", Scope.HOST,
    "How many batches has the data loader ready?", label="loader",
    feeds="bound:io",
)  # fmt: skip
LOADER_CAPACITY: Final = _reading(
    "overwatch.host.loader.limit", "loader_capacity", "{batch}", Scope.HOST,
    "How many batches may the data loader keep ready?", label="load max",
    feeds="bound:io",
)  # fmt: skip
QUEUE_DEPTH: Final = _reading(
    "overwatch.host.queue.depth", "queue_depth", "{batch}", Scope.HOST,
    "How many batches of experience wait for the learner?", label="queue",
    feeds="bound:starved bound:learner",
)  # fmt: skip
QUEUE_CAPACITY: Final = _reading(
    "overwatch.host.queue.limit", "queue_capacity", "{batch}", Scope.HOST,
    "How many batches of experience may wait for the learner?", label="que max",
    feeds="bound:starved bound:learner",
)  # fmt: skip

ROWS: Final = (
    UTILIZATION, SM_ACTIVITY, DIP_SHARE, DIP_LENGTH, MEMORY_USED, MEMORY_TOTAL, TEMPERATURE, POWER,
    POWER_LIMIT, CLOCK, CLOCK_MAX, THROTTLE,
    PROCESS_MEMORY, PCIE_RECEIVE, PCIE_TRANSMIT, NVLINK_RECEIVE, NVLINK_TRANSMIT, ECC_UNCORRECTED,
    CPU, CPU_BUSIEST, RAM_USED, RAM_TOTAL, DISK_USED, DISK_TOTAL, DISK_READ, DISK_WRITE, NETWORK,
    LOADER_DEPTH, LOADER_CAPACITY, QUEUE_DEPTH, QUEUE_CAPACITY,
)  # fmt: skip

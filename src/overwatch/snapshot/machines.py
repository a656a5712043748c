"""Machines and the services on them, as a view may know them: what holds them back, what they count."""

import msgspec


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """How far an env, or a lane, is from normal, with reasons, strongest first."""

    score: float
    reasons: tuple[str, ...] = ()


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a machine back, and why we think so."""

    state: str
    why: str | None = None
    hint: str | None = None
    confidence: float | None = None
    evidence: tuple[str, ...] = ()
    mark: str = ""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How long something takes, seconds, over the newest times."""

    p50: float
    p95: float


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
    sm_activity: float | None = None
    """Share of its processors that had work; where the driver reports it."""
    dip_share: float | None = None
    """Share of the newest minute in which its utilisation was below half."""
    dip_p95_s: float | None = None
    """So long at most are 95 of 100 of these dips; `None` where there was none."""
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
    oom_s: float | None = None
    """Seconds until memory is full, if its peaks go on rising as they do."""
    step_s: Spread | None = None
    """Step time of the envs on it."""
    update_s: Spread | None = None
    """Time of one update, collecting and learning, of the rank on it."""
    age_s: float | None = None
    bound: Bound | None = None
    anomaly: Anomaly | None = None
    """How far it is from the other lanes."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the host."""

    pid: int
    name: str
    cpu: float
    """Cores that it keeps busy."""
    ram_bytes: float


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the trainer runs on."""

    cpu_utilization: float | None = None
    cpu_busiest: float | None = None
    """The busiest core."""
    cpu_history: tuple[float | None, ...] = ()
    ram_used_bytes: float | None = None
    ram_total_bytes: float | None = None
    disk_used_bytes: float | None = None
    """Of the disk that the run's checkpoints go to."""
    disk_total_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    loader_depth: float | None = None
    loader_capacity: float | None = None
    queue_depth: float | None = None
    """Batches of experience that wait for the learner."""
    queue_capacity: float | None = None
    processes: tuple[Process, ...] = ()
    """The five that keep most cores busy, the busiest first."""
    age_s: float | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes, the host, and the run's bound as a whole."""

    gpus: tuple[Lane, ...] = ()
    host: Host | None = None
    bound: Bound | None = None
    idle_gpu_s: dict[str, float] = {}
    """GPU-seconds in which nothing ran, by the bound that held; every bound is there."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a histogram whose span is known."""

    bucket: int
    """Place of its bucket."""
    value: float
    at: float
    """When it was observed, Unix seconds."""
    trace_id: str
    span_id: str


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One counter or histogram with labels, of one process over all its lives."""

    name: str
    """Full name; of a custom one without its prefix."""
    role: str
    rank: int
    labels: dict[str, str] = {}
    is_custom: bool = False
    """Whether no row of the catalogue knows it."""
    total: float | None = None
    """Of a counter its total, of a histogram the sum of its values, where that is known."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    bounds: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets, where they are known."""
    counts: tuple[int, ...] = ()
    """Values in each bucket, not cumulated, and one more of those above the last end."""
    samples: tuple[Sample, ...] = ()
    """The newest of each bucket that a trace shows."""


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A counter or histogram over all processes and labels."""

    total: float | None = None
    """Of a counter its total, of a histogram the sum of its values."""
    count: int | None = None
    """How many values a histogram holds; absent of a counter."""
    rate: float | None = None
    """Counted in a second, over the last minute; absent before its second record."""
    p50: float | None = None
    """About the middle of a histogram's values of the last minute; absent without any."""
    p99: float | None = None


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service in a line."""

    name: str
    """Its role, and its rank where that is not 0."""
    status: str
    """`ok`, `warning`, `critical`, or `silent` where it has not reported for half a minute."""
    age_s: float
    """Since its newest record came."""
    parts: tuple[str, ...] = ()
    """What it is like in words with numbers, what matters most first."""
    bound: Bound | None = None
    """What holds it back, by its own phases; absent of a learner, which is a rank of its run."""

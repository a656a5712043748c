"""What a trainer and its exporter process give one another.

The trainer leaves a `Hello`, sends an `Arrival`, writes `Frame`s into its rings and ends with a `Close`; the
exporter writes its `Progress`. Must not know sockets, processes or OTLP; loads no NumPy.
"""

from typing import Final, TypeAlias

import msgspec

from overwatch.events import Event, RunStarted
from overwatch.sdk.rollouts.columns import WordTables


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Which run and process this is, and where its telemetry goes."""

    run_id: str
    join: str | None = None
    """See `overwatch.events.Origin.join`."""
    role: str
    rank: int
    epoch: str
    """UUID of this life of the producer."""
    pid: int
    """The trainer's process."""
    endpoint: str | None
    """OTLP endpoint that the trainer asked for."""
    otlp_env: dict[str, str] | None = None
    """What of the trainer's environment decides the destination, with its secrets: see `sdk.trainer_env`."""
    env: dict[str, str] | None = None
    """What else its exporter reads of it; `None` of a version that kept none."""
    is_daemon: bool = False
    """Whether it is a worker that its parent ends with SIGTERM, as those of a `multiprocessing.Pool`."""
    folder: bytes | None = None
    """The trainer's working folder, as the file system has it; `None` where it has none any more."""
    sample: bool
    """Whether to sample this machine."""
    quiet: bool = False
    """Whether nothing is logged of a collector that is away: another process of the run does, or none."""
    started: RunStarted
    """What the trainer knows of the run; the exporter adds node and revision."""
    words: WordTables | None = None
    """What the codes of its rollouts count into; `None` where it has none."""


class Update(msgspec.Struct, frozen=True, kw_only=True, tag="update"):
    """Numbers of one policy update under their full names: the short form of `Measured`."""

    at: int
    values: dict[str, float]
    index: int | None = None


class SpanEnded(msgspec.Struct, frozen=True, kw_only=True, tag="span_ended"):
    """A span that a process made itself: sent as a span alone, and no event of the run."""

    at: int
    """Unix nanoseconds at which it ended."""
    name: str
    duration_s: float
    traceparent: str
    parent: str | None = None
    links: tuple[str, ...] = ()
    """As headers of W3C Trace Context, as the two above."""
    attributes: dict[str, str | int | float] = {}


class Table(msgspec.Struct, frozen=True, array_like=True):
    """Dense values, step by step: a value an env or an env and slot."""

    dtype: str
    """As of `overwatch.events.Column`."""
    data: bytes


class Rolled(msgspec.Struct, frozen=True, kw_only=True, tag="rolled"):
    """Some steps of a rollout, dense: either their numbers, or what their facts are made of.

    Of facts, `ended` and the tables of slots begin with the step before `first_step`.
    """

    at: int
    """Unix nanoseconds at which the last step ended."""
    at_first: int
    """The same of the first."""
    first_step: int
    steps: int
    env_first: int
    envs: int
    slots: int = 0
    """Slots of an env."""
    is_fact: bool
    mean_of: int = 1
    """Steps up to the last that each row is the mean of."""
    lane: str | None = None
    numbers: dict[str, Table] = {}
    """Numbers of envs by full name."""
    slot_numbers: dict[str, Table] = {}
    """Numbers of slots by full name."""
    codes: dict[str, Table] = {}
    """Codes by the names of the columns of `run.rollout`; -1 is absent."""
    seeds: bytes = b""
    """Of each env and slot, seeds that germinated before `first_step`: 32-bit numbers."""


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing follows; deliver what there is."""

    deadline: float
    """On this machine's monotonic clock, seconds."""
    at_exit: bool = False
    """The trainer's process ends now: its exit status may correct the outcome."""


Frame: TypeAlias = Update | SpanEnded | Rolled | Event
"""What a record of a ring holds, but for the short forms of `overwatch.sdk.rings.records`."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One run that comes to an exporter process, with open files: its line, its account, and what is here."""

    rings: bytes
    """Path of its rings, as the file system has it."""
    has_handle: bool
    """A handle on the trainer's process follows."""
    has_errors: bool
    """The trainer's error stream follows: what is logged of this run is for it."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records, as the exporter writes it to its standard output."""

    delivered: int = 0
    dropped: dict[str, int] = {}
    settled: dict[str, int] = {}
    """By ring, the record up to which everything was delivered or dropped."""
    final: bool = False
    """The exporter is done; nothing will change."""
    at_risk: int = 0
    """Records that wait and may be lost with the exporter, because its disk is in trouble."""
    kept: int | None = None
    """Records that lie on disk, known when everything was read."""


progress_of: Final = msgspec.json.Decoder(Progress).decode
"""What an exporter wrote; raises `msgspec.MsgspecError`."""
arrival_of: Final = msgspec.msgpack.Decoder(Arrival).decode
"""Raises `msgspec.MsgspecError`."""
close_of: Final = msgspec.msgpack.Decoder(Close).decode
"""Raises `msgspec.MsgspecError`, of one that is cut short too."""

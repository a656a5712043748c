"""A run in the formats of other programs: tables as CSV or Parquet, OpenMetrics, TensorBoard.

Owns which formats there are and what each is made of.
OpenMetrics 1.0 with times is what `promtool tsdb create-blocks-from openmetrics` reads: samples of a series
stand in order of time, each time once; of two values at one time the later one counts.

A TensorBoard event file is written without TensorBoard: TFRecords of `Event` messages. A record is its
length, a masked CRC-32C of that, the message, a masked CRC-32C of it. Of a message: wall time (field 1), step
(2), and as its first the file version (3), then summaries (5) of a tag and a plain value. The step of a
policy's number is the update, that of a machine's the second of the run.
"""

import io
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple, get_args

import msgspec
from prometheus_client import samples
from prometheus_client.openmetrics.exposition import generate_latest

from overwatch.analyse.curves import NOT_OK, STEPS_PER_S, TASK_METRIC, Curve
from overwatch.analyse.rows import Row, Value, cells, csv_line, rows
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.catalog import Kind, Scope, label_name, name_of, plain_name, prometheus_name
from overwatch.extras import PARQUET
from overwatch.otlp.protobuf import varint
from overwatch.output import output
from overwatch.serve.metrics_text import Families, Family, visible
from overwatch.serve.prometheus import RUN_LABEL

TABLES: Final = ("metrics", "findings", "events", "envs")
LANE_LABEL: Final = label_name("hw.id")
_OWN: Final = {
    STEPS_PER_S: ("overwatch.run.steps_per_second", "How many env steps a second?"),
    NOT_OK: ("overwatch.envs.not_ok", "How many envs are not OK?"),
    TASK_METRIC: ("overwatch.envs.metric", "What is the median over envs of the run's own metric?"),
}
"""Name and question of what is no row of the catalogue."""
_METRICS: Final = MappingProxyType[str, type](
    {
        "run": str, "metric": str, "unit": str, "gpu": str, "time": float, "at": float, "update": float,
        "steps": float, "value": float,
    }
)  # fmt: skip
"""Columns of numbers."""


def _kind(of: Any) -> type:
    """The type of a column: what is no number is text."""
    kind = (*get_args(of), of)[0]
    return kind if kind in (float, int) else str


_ROWS: Final = MappingProxyType({field.name: _kind(field.type) for field in msgspec.structs.fields(Row)})
"""Columns of findings, events and envs; fields are JSON."""
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8
_VERSION: Final = b"brain.Event:2"


def export(run_history: RunHistory, fmt: str, out: Path, table: str = "metrics") -> int:
    """Write one run; returns how many values or rows there are. Raises `AnalyseError`."""
    if table != "metrics" and fmt not in ("csv", "parquet"):
        raise AnalyseError(f"{fmt} holds metrics only; write {table} as csv or parquet")
    if fmt == "tensorboard":
        return _tensorboard(run_history, out)
    if fmt == "parquet":
        return _parquet(run_history, out, table)
    with _text(out) as file:
        if fmt == "openmetrics":
            values = 0
            for text, count in openmetrics(run_history):
                file.write(text)
                values += count
            return values
        return write_csv(file, [run_history], table)


def left_out(run_history: RunHistory) -> str | None:
    """What of a run's updates no value is of; `None` where every update has its values."""
    curves = run_history.curves
    if not curves.updates and curves.policy:
        return "a log of snapshots has the newest ten values of a number each second, not those between"
    if curves.folded:
        return (
            f"{curves.folded:,} of {curves.updates:,} updates are folded into the next value: they came "
            "faster than they are sent, or the recording was thinned"
        )
    return None


@contextmanager
def _text(out: Path) -> Iterator[IO[str]]:
    """A text file; `-` is standard output."""
    with output(out) as stream:
        file = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        try:
            yield file
        finally:
            file.detach()


def write_csv(file: IO[str], histories: Iterable[RunHistory], table: str, *, is_guarded: bool = True) -> int:
    """A header, then a line a row; what is missing is empty. `is_guarded` is for spreadsheets."""
    file.write(csv_line(columns(table)) + "\n")
    count = 0
    for row in (row for run_history in histories for row in _table(run_history, table)):
        file.write(csv_line(row, is_guarded=is_guarded) + "\n")
        count += 1
    return count


def columns(table: str) -> Mapping[str, type]:
    """The columns of a table, by name."""
    return _METRICS if table == "metrics" else _ROWS


def _table(run_history: RunHistory, table: str) -> Iterator[Sequence[Value]]:
    if table != "metrics":
        yield from (cells(row) for row in rows(run_history, (table.removesuffix("s"),)))
        return
    run_id, has_steps = run_history.run.run_id, run_history.run.steps is not None
    for curve in _curves(run_history):
        name, unit = _name_and_question(curve)[0], None if curve.row is None else curve.row.unit
        for one in _samples(run_history, curve):
            yield (run_id, name, unit, curve.subject, round(one.time, 6), round(one.at, 6), one.update,
                   one.steps if has_steps else None, one.value)  # fmt: skip


def _parquet(run_history: RunHistory, out: Path, table: str) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise AnalyseError(PARQUET.need) from error
    if str(out) == "-":
        raise AnalyseError(f"parquet is not written to {out}; name a file")
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    wanted = columns(table)
    lists = list(zip(*_table(run_history, table), strict=True)) or [()] * len(wanted)
    arrays = [pa.array(values, kinds[kind]) for values, kind in zip(lists, wanted.values(), strict=True)]
    about = {
        "run": run_history.run.run_id,
        "began": datetime.fromtimestamp(run_history.began, UTC).isoformat(),
    }
    made = pa.Table.from_arrays(arrays, names=list(wanted), metadata=about)
    with output(out) as stream:
        parquet.write_table(made, stream)
    return int(made.num_rows)


class Sample(NamedTuple):
    """One value."""

    time: float
    """Unix seconds."""
    at: float
    """Seconds since the run began."""
    update: float
    steps: float
    value: float | None
    """`None` where it was not finite."""


def _curves(run_history: RunHistory) -> list[Curve]:
    """Those of the policy and the services in catalogue order, then those of machines and the fleet."""
    return [
        one for one in (*run_history.curves.policy.values(), *run_history.curves.machine.values()) if len(one)
    ]


def _samples(run_history: RunHistory, curve: Curve) -> Iterator[Sample]:
    """The values of a curve, in the order in which they came."""
    for value, update, at, steps in zip(curve.value, curve.update, curve.time, curve.steps, strict=True):
        yield Sample(run_history.began + at, at, update, steps, value if math.isfinite(value) else None)


def _name_and_question(curve: Curve) -> tuple[str, str]:
    """OpenTelemetry name of a number, and what it answers."""
    if curve.name in _OWN:
        return _OWN[curve.name]
    if curve.row is not None:
        return curve.row.name, curve.row.asks
    name = name_of(curve.name) if curve.scope is Scope.POLICY else curve.name
    return name, "A value of the run's own."


def openmetrics(run_history: RunHistory) -> Iterator[tuple[str, int]]:
    """Return the text of each family, and how many values it has."""
    families: dict[str, list[Curve]] = {}
    for curve in _curves(run_history):
        families.setdefault(_family(curve), []).append(curve)
    for name, members in families.items():
        counts = _counts(members[0])
        family = Family(name, _name_and_question(members[0])[1], "counter" if counts else "gauge")
        for member in members:
            family.samples += _family_samples(run_history, member, name + ("_total" if counts else ""))
        text: bytes = generate_latest(Families([family]))  # type: ignore[no-untyped-call]
        yield text.decode().removesuffix("# EOF\n"), len(family.samples)
    yield "# EOF\n", 0


def _family_samples(run_history: RunHistory, curve: Curve, name: str) -> Iterator[samples.Sample]:
    words = {RUN_LABEL: run_history.run.run_id}
    if curve.subject is not None:
        words[LANE_LABEL] = _lane(run_history, curve.subject)
    words |= {label_name(key): word for key, word in (curve.row.attributes if curve.row else {}).items()}
    shown = {label: visible(word) for label, word in words.items()}
    by_time = {round(one.time, 3): one.value for one in _samples(run_history, curve) if one.value is not None}
    for time in sorted(by_time):
        yield samples.Sample(name, shown, by_time[time], time)


def _lane(run_history: RunHistory, name: str) -> str:
    """What `/metrics` calls a lane."""
    return next(
        (lane.uuid for lane in run_history.last.system.gpus if lane.gpu_id == name and lane.uuid), name
    )


def _counts(curve: Curve) -> bool:
    """Whether it only rises."""
    return curve.row is not None and curve.row.kind is Kind.COUNTER


def _family(curve: Curve) -> str:
    row = None if curve.name in _OWN else curve.row
    name = plain_name(_name_and_question(curve)[0]) if row is None else prometheus_name(row)
    return name.removesuffix("_total") if _counts(curve) else name


def _tensorboard(run_history: RunHistory, out: Path) -> int:
    """Write one event file into a folder, which is a run of TensorBoard's; returns how many values it has.

    A file of this run that is there already is replaced. Raises `AnalyseError` for what is no folder.
    """
    if str(out) == "-" or (out.exists() and not out.is_dir()):
        raise AnalyseError(f"tensorboard needs a folder of its own; {out} is none")
    file = out / f"events.out.tfevents.{int(run_history.began)}.overwatch"
    values = 0
    with output(file) as stream:
        stream.write(record(_double(1, run_history.began) + _bytes(3, _VERSION)))
        for one in moments(run_history):
            pairs = (_bytes(1, tag.encode()) + _float(2, value) for tag, value in one.values.items())
            summary = b"".join(_bytes(1, pair) for pair in pairs)
            stream.write(record(_double(1, one.time) + _number(2, one.step) + _bytes(5, summary)))
            values += len(one.values)
    return values


class Moment(NamedTuple):
    """Values that share their time and their step."""

    time: float
    """Unix seconds."""
    step: int
    is_update: bool
    """Whether the step is the policy's update; else it is the second of the run."""
    values: dict[str, float]
    """By tag: `policy/kl_divergence`, `gpu/utilization/gpu0`."""


def moments(run_history: RunHistory) -> list[Moment]:
    """All values that were finite, in order of time."""
    found: dict[tuple[float, int, bool], dict[str, float]] = {}
    policy = {id(curve) for curve in run_history.curves.policy.values()}
    for curve in _curves(run_history):
        tag = "/".join(word for word in (curve.scope.value, curve.name, curve.subject) if word)
        is_update = id(curve) in policy
        for sample in _samples(run_history, curve):
            if sample.value is not None:
                step = max(0, round(sample.update if is_update else sample.at))
                found.setdefault((sample.time, step, is_update), {})[tag] = sample.value
    return [Moment(*key, found[key]) for key in sorted(found)]


def record(message: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_row, range(256)))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    """As a float of four bytes; what is too large for one is infinite."""
    limit = 3.4028234663852886e38
    short = value if abs(value) <= limit else float("inf") if value > 0 else float("-inf")
    return varint(field << 3 | 5) + struct.pack("<f", short)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value

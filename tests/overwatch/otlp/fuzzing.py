"""Streams of requests as clients send them, with all that may happen to one of them; of a seed the same.

A client sends one shape for a while, other numbers each time; now and then something changes in the middle.
Shapes are learned along the way, so what is read depends on what came before: a case is a stream.
"""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from overwatch.catalog import Scope
from overwatch.events import (
    ActionTaken,
    Column,
    Conflated,
    EarlyStopped,
    EnvCrashed,
    EpisodeEnded,
    Event,
    GateEvaluated,
    LogLine,
    Measured,
    Origin,
    Record,
    Severity,
    scalars,
)
from overwatch.journal import Signal
from overwatch.otlp import points, wire
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.shapes import Shapes
from overwatch.otlp.wire import MalformedBody
from tests.overwatch.otlp.attributes import to_pairs
from tests.overwatch.otlp.test_shapes import whole

Case: TypeAlias = tuple[Signal, bytes]
T: Final = 1_790_000_000_000_000_000
ODD: Final = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308, 2.0**53)
EVERY: Final = 6
"""One of so many requests is changed by hand."""


class Client:
    """One producer: what it sends, again and again."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._envs = dice.randrange(8, 40)
        self._seq = dice.choice([1, 100, 127, 16_000, 2_000_000])
        self._at = T + dice.randrange(10**9)
        self._origin = Origin(run_id=f"r{dice.randrange(3)}", rank=dice.randrange(3), epoch="e", ours=True)
        self._sends = dice.choice([self._logs, self._metrics, self._facts])
        self._names = dice.sample(["kl_divergence", "entropy", "value_loss", "clip_fraction", "x"], 3)
        self._has_lanes = dice.random() < 0.5

    def next(self) -> Case:
        """The next request."""
        self._at += self._dice.randrange(1, 10**8)
        return self._sends()

    def _number(self) -> float:
        return self._dice.choice(ODD) if self._dice.random() < 0.02 else self._dice.gauss(0, 10)

    def _column(self, rows: int) -> Column:
        kind = self._dice.choice(["<f8", "<f8", "<f8", "<f4"])
        return Column(dtype=kind, data=struct.pack(f"<{rows}{'d' if kind == '<f8' else 'f'}", *[
            self._dice.gauss(0, 10) for _ in range(rows)
        ]))  # fmt: skip

    def _logs(self) -> Case:
        events = [
            make()
            for make in (self._policy, self._step, self._host, self._acted)
            if self._dice.random() < 0.8
        ]
        records = [Record(origin=self._origin, event=e, seq=self._seq + i) for i, e in enumerate(events)]
        self._seq += len(records)
        return Signal.LOGS, request(records, {})

    def _policy(self) -> Event:
        values = scalars({f"overwatch.policy.{name}": self._number() for name in self._names})
        broken = {name: self._dice.randrange(1, 300) for name in values if self._dice.random() < 0.1}
        folded = Conflated(
            n=self._dice.randrange(2, 200), first=self._seq, low=values, high=values, warnings=broken
        )
        return Measured(at=self._at, scope=Scope.POLICY, values=values, index=self._seq, conflated=folded)

    def _step(self) -> Event:
        keys = {"env_id": Column.of(list(range(self._envs)))}
        values = {"overwatch.env.reward": self._column(self._envs)}
        if self._has_lanes:
            values["lane"] = Column.of_labels([f"GPU-{self._dice.randrange(2)}" for _ in range(self._envs)])
        return Measured(at=self._at, scope=Scope.ENV, keys=keys, values=values, index=self._seq)

    def _host(self) -> Event:
        return Measured(
            at=self._at, scope=Scope.HOST, values=scalars({"a": self._number(), "b": self._number()})
        )

    def _acted(self) -> Event:
        rows = self._dice.choice([3, 3, 4])
        ids = Column.of(self._dice.sample(range(self._envs), rows))
        if self._dice.random() < 0.5:
            return EpisodeEnded(at=self._at, env_id=ids, episode_return=self._column(rows))
        ops = Column.of_labels([self._dice.choice(["grow", "prune", None]) for _ in range(rows)])
        return ActionTaken(at=self._at, env_id=ids, op=ops, step=self._seq)

    def _facts(self) -> Case:
        makers = self._dice.sample([self._gate, self._crash, self._line, self._stop], 2)
        events = [self._dice.choice(makers)() for _ in range(self._dice.randrange(4, 60))]
        records = [Record(origin=self._origin, event=e, seq=self._seq + i) for i, e in enumerate(events)]
        self._seq += len(records)
        return Signal.LOGS, request(records, {})

    def _word(self) -> str:
        rare = self._dice.random() < 0.05
        return self._dice.choice(['a"b', "é", "a\nb", "", "\\n"] if rare else ["r0c0", "r1c1", "s77", "s123"])

    def _gate(self) -> Event:
        return GateEvaluated(
            at=self._at + self._dice.randrange(9), env_id=self._dice.randrange(self._envs), slot=self._word(),
            seed_id=self._word(), gate="G2", passed=self._dice.random() < 0.8, score=self._number(),
        )  # fmt: skip

    def _crash(self) -> Event:
        return EnvCrashed(at=self._at, env_id=self._dice.randrange(300), error=self._word())

    def _line(self) -> Event:
        fields = {self._word(): self._word()} if self._dice.random() < 0.2 else {}
        return LogLine(
            at=self._at, severity=self._dice.choice(list(Severity)), message=self._word() * 20, fields=fields
        )

    def _stop(self) -> Event:
        return EarlyStopped(
            at=self._at, update=self._seq, epoch=2, kl_divergence=self._number(), target=0.1,
            minibatches_skipped=self._dice.randrange(200),
        )  # fmt: skip

    def _metrics(self) -> Case:
        message = ExportMetricsServiceRequest()
        producer = message.resource_metrics.add()
        producer.resource.attributes.extend(
            to_pairs({"rl.run.id": self._origin.run_id, "service.instance.id": "i"})
        )
        scope = producer.scope_metrics.add()
        envs = list(range(self._envs))
        if self._dice.random() < 0.2:
            self._dice.shuffle(envs)
        names = ("overwatch.env.reward", "overwatch.env.entropy", "overwatch.run.steps")
        for name in names if self._has_lanes else names[:2]:
            metric = scope.metrics.add(name=name)
            data = metric.sum if name.endswith("steps") else metric.gauge
            if name.endswith("steps"):
                metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True  # type: ignore[assignment]
            for env in envs if not name.endswith("steps") else envs[:1]:
                self._point(data.data_points.add(), env)
        return Signal.METRICS, message.SerializeToString()

    def _point(self, point: NumberDataPoint, env: int) -> None:
        point.attributes.extend(to_pairs({"overwatch.env.id": env, "lane": "x" * (env % 3)}))
        point.time_unix_nano = self._at
        if env % 5:
            point.as_double = self._number()
        else:
            point.as_int = self._dice.randrange(-5, 10**6)


def _flip(dice: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(dice.randrange(1, 4)):
        changed[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _cut(dice: random.Random, body: bytes) -> bytes:
    start = dice.randrange(len(body))
    return body[:start] + body[start + dice.randrange(1, 12) :]


def _repeat(dice: random.Random, body: bytes) -> bytes:
    start = dice.randrange(len(body))
    part = body[start : start + dice.randrange(1, 40)]
    return body[:start] + part + body[start:]


def _unknown(dice: random.Random, body: bytes) -> bytes:
    more = (b"\x78\x01", b"\xfa\x01\x03abc", b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x1d\x00\x00\x00\x00")
    return body + dice.choice(more)


def _zero_time(dice: random.Random, body: bytes) -> bytes:
    times = [
        place for place in range(len(body) - 8) if body[place] in (0x09, 0x19) and body[place + 8] == 0x18
    ]
    if not times:
        return body
    place = dice.choice(times)
    return body[: place + 1] + dice.choice([bytes(8), b"\xff" * 8]) + body[place + 9 :]


def _rewritten(dice: random.Random, signal: Signal, body: bytes) -> bytes:
    """Another order of attributes, another kind of value, a flag, an exemplar, an attribute twice."""
    return _other_record(dice, body) if signal is Signal.LOGS else _other_point(dice, body)


def _other_record(dice: random.Random, body: bytes) -> bytes:
    logs = ExportLogsServiceRequest.FromString(body)
    scopes = [scope for one in logs.resource_logs for scope in one.scope_logs]
    record = dice.choice([record for scope in scopes for record in scope.log_records])
    match dice.randrange(4):
        case 0:
            record.attributes.sort(key=lambda _: dice.random())
        case 1:
            record.attributes.append(dice.choice(list(record.attributes)))
        case 2:
            record.flags, record.severity_text = dice.randrange(3), dice.choice(["", "WARN"])
        case _:
            record.time_unix_nano = 0
    return logs.SerializeToString()


def _other_point(dice: random.Random, body: bytes) -> bytes:
    message = ExportMetricsServiceRequest.FromString(body)
    scopes = [scope for one in message.resource_metrics for scope in one.scope_metrics]
    metrics = [metric for scope in scopes for metric in scope.metrics]
    point = dice.choice([point for metric in metrics for point in metric.gauge.data_points])
    match dice.randrange(5):
        case 0:
            point.attributes.sort(key=lambda _: dice.random())
        case 1:
            point.as_int = dice.randrange(-9, 9)
        case 2:
            point.flags = 1
        case 3:
            point.exemplars.add(as_double=1.5, time_unix_nano=T)
        case _:
            point.start_time_unix_nano = T
    return message.SerializeToString()


HANDS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _flip, _flip, _cut, _repeat, _unknown, _zero_time,
)  # fmt: skip


def stream(seed: int, length: int) -> Iterator[Case]:
    """A few clients in turns; some of their requests are changed by hand."""
    dice = random.Random(seed)  # noqa: S311 the same each time
    clients = [Client(dice) for _ in range(dice.randrange(1, 4))]
    for _ in range(length):
        signal, body = dice.choice(clients).next()
        if body and dice.randrange(EVERY) == 0:
            hand = dice.choice((*HANDS, None, None))
            body = _rewritten(dice, signal, body) if hand is None else hand(dice, body)
        yield signal, body


class Judge:
    """Reads a stream both ways."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self.requested = self.known = 0
        """Requests, and those of them whose shape was known."""

    def differs(self, signal: Signal, body: bytes) -> bool:
        """Whether the ways disagree on the next request: by its shape, by attributes, and parsed."""
        self.requested += 1
        right = _parsed(signal, body)
        if signal is Signal.METRICS:
            stated = self._shapes.read(body)
            self.known += stated is not None
            if stated is not None and whole(stated) != right:
                return True
            if stated is None and right is not None:
                self._shapes.study(body)
        try:
            return whole(decode(signal, body)) != right
        except MalformedBody:
            return right is not None


def _parsed(signal: Signal, body: bytes) -> str | None:
    """What a request states where each of its points is parsed; `None` where OTLP's own parser refuses it."""
    try:
        wire.parse(signal, body)
    except MalformedBody:
        return None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(points, "unpacked", lambda _: None)
        return whole(decode(signal, body))

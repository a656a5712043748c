"""Attributes as plain values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overwatch.catalog import Scope
from overwatch.events import (
    Column,
    EnvCrashed,
    EnvsRemoved,
    Event,
    LogLine,
    Measured,
    RunFinished,
    Severity,
)
from overwatch.fold import DEFAULT_VIEW, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import from_json, to_json
from overwatch.otlp.origin import begins_run, implied_id
from overwatch.otlp.value import Value, attributes_to_python, to_python
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_any, to_pairs
from tests.overwatch.otlp.strategies import INTS, WORDS

PLAIN: st.SearchStrategy[Value] = st.one_of(
    st.none(), WORDS, st.booleans(), INTS, st.floats(), st.binary(max_size=4),
    st.sampled_from(["", 0, 0.0, -0.0, False, b"", math.nan]),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3)
)


@given(st.lists(st.tuples(st.sampled_from("abc"), VALUES.map(to_any)), max_size=6))
def test_the_last_value_of_each_name_is_read_with_its_kind(reported: list[tuple[str, AnyValue]]) -> None:
    """As one by one: nothing empty is taken for another kind, no zero loses its sign."""
    expected: dict[str, Value] = {}
    for name, value in reported:
        expected[name] = to_python(value)
    assert repr(attributes_to_python(KeyValue(key=name, value=value) for name, value in reported)) == repr(
        expected
    )


KL = "overwatch.policy.kl_divergence"
LOSS = "overwatch.policy.loss"
CPU = "system.cpu.utilization"
SERVICE = "service.name"
INSTANCE = "service.instance.id"
HOST, PID = "host.name", "process.pid"

Named = list[tuple[str, Value]]


def pairs(named: Named) -> list[KeyValue]:
    """Attributes in order, each as often as it is given."""
    return [KeyValue(key=key, value=to_any(value)) for key, value in named]


def metrics(resource: Named, *names: str, point: Named | None = None, at: int = 0) -> bytes:
    """A gauge point of each name."""
    message = ExportMetricsServiceRequest()
    named = message.resource_metrics.add()
    named.resource.attributes.extend(pairs(resource))
    for name in names:
        gauge = named.scope_metrics.add().metrics.add(name=name).gauge
        gauge.data_points.add(
            time_unix_nano=START_NS + at, as_double=0.25 + at, attributes=pairs(point or [])
        )
    return message.SerializeToString()


def logs(resource: Named, *names: str, own: Named | None = None, at: int = 0) -> bytes:
    """A log record of each name, long enough to be worth a template."""
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(pairs(resource))
    records = named.scope_logs.add().log_records
    for name in names:
        reported: dict[str, Value] = {"overwatch.scope": "policy", KL: 0.01 + at, LOSS: 1.5 + at}
        if name == "overwatch.env_crashed":
            reported = {"overwatch.error": f"segmentation fault number {at:04} " * 4}
        record = records.add(time_unix_nano=START_NS + at, event_name=name, attributes=to_pairs(reported))
        record.attributes.extend(pairs(own or []))
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({SERVICE: "trainer"}, "service:trainer"),
        ({SERVICE: "trainer", INSTANCE: "i-1"}, "service:trainer/i-1"),
        ({SERVICE: 17, INSTANCE: 4}, "service:17/4"),
        ({SERVICE: "trainer", "service.namespace": "lab"}, "service:lab/trainer"),
        ({SERVICE: "trainer", HOST: "node", PID: 12}, "service:trainer"),
        ({INSTANCE: "i-1"}, "service:i-1"),
        ({HOST: "node", PID: 12}, "process:node/12"),
        ({SERVICE: "unknown_service:python", HOST: "node", PID: 12}, "process:node/12"),
        ({SERVICE: "unknown_service", INSTANCE: "i-1", HOST: "node", PID: 12}, "service:i-1"),
        ({SERVICE: "unknown_service:python"}, "service:unknown_service:python"),
        ({HOST: "node"}, None),
        ({SERVICE: ""}, None),
        ({}, None),
    ],
)
def test_what_names_no_run_is_of_one_run_of_its_service_or_process(
    attributes: dict[str, Value], expected: str | None
) -> None:
    """The id shows what it is made of; an SDK's word for no name is none, while there is a better one."""
    assert implied_id(attributes) == expected


def test_an_implied_id_is_never_too_long_to_be_taken() -> None:
    """Of long names the beginning counts."""
    (record,) = decode(Signal.METRICS, metrics([(SERVICE, "s" * 999), (INSTANCE, "i" * 999)], KL)).records

    assert record.origin.run_id.startswith("service:sss")
    assert "/iii" in record.origin.run_id
    assert record.origin.is_implied


@pytest.mark.parametrize(
    ("event", "begins"),
    [
        (Measured(at=1, scope=Scope.POLICY, values={}), True),
        (Measured(at=1, scope=Scope.ENV, keys={"env_id": Column.of([1])}, values={}), True),
        (Measured(at=1, scope=Scope.LEARNER, values={}), True),
        (Measured(at=1, scope=Scope.HOST, values={}), False),
        (Measured(at=1, scope=Scope.GPU, keys={"gpu_id": Column.of_labels(["a"])}, values={}), False),
        (Measured(at=1, scope=Scope.TOWER, values={}), False),
        (EnvCrashed(at=1, env_id=1, error=""), True),
        (LogLine(at=1, severity=Severity.INFO, message="m"), False),
        (RunFinished(at=1, outcome="completed"), False),
        (EnvsRemoved(at=1, env_id=Column.of([1])), False),
    ],
)
def test_only_what_a_trainer_sends_begins_a_run(event: Event, *, begins: bool) -> None:
    """Machines, collectors and services that train nothing have names too."""
    assert begins_run(event) is begins


def fold_of(*bodies: tuple[Signal, bytes]) -> Fold:
    """A fold that took these requests one after another."""
    fold = Fold()
    for place, (signal, body) in enumerate(bodies):
        stamp = START_NS + 1 + place
        batch = Batch(sequence=place + 2, stamp=stamp, signal=signal, body=body)
        fold.advance(next_tick(stamp), [batch], ())
    return fold


def test_a_service_that_trains_becomes_a_run_and_a_machine_does_not() -> None:
    """What no run begins with is counted, and belongs to the run once there is one."""
    named: Named = [(SERVICE, "trainer")]
    before = [(Signal.METRICS, metrics(named, CPU)), (Signal.LOGS, logs(named, "app.ready"))]
    nothing = fold_of(*before)
    assert (nothing.newest, nothing.tower.unattributed) == (None, 2)

    fold = fold_of(*before, (Signal.METRICS, metrics(named, KL)), *before)
    assert (fold.newest, fold.tower.unattributed) == ("service:trainer", 2)
    shown = fold.look([(None, DEFAULT_VIEW)])["service:trainer", DEFAULT_VIEW]
    assert shown.policy["kl_divergence"].value == 0.25
    assert shown.run.service == "trainer"
    assert "app.ready" in {one.message for one in shown.feed}


def test_a_run_that_is_named_is_not_of_its_service() -> None:
    """By the resource, or by the item itself."""
    for body in (
        metrics([(SERVICE, "trainer"), ("rl.run.id", "r")], KL),
        metrics([(SERVICE, "trainer")], KL, point=[("rl.run.id", "r")]),
    ):
        (record,) = decode(Signal.METRICS, body).records
        assert (record.origin.run_id, record.origin.is_implied) == ("r", False)


@pytest.mark.parametrize(
    ("signal", "body", "rejected"),
    [
        (Signal.METRICS, metrics([], KL, LOSS), 2),
        (
            Signal.LOGS,
            logs([], "overwatch.measured", "overwatch.env_crashed", own=[("overwatch.env.id", 1)]),
            2,
        ),
        (Signal.METRICS, metrics([], CPU, "app.latency"), 0),
        (Signal.LOGS, logs([], "app.ready", ""), 0),
    ],
)
def test_without_any_name_a_trainers_items_are_rejected_with_the_reason(
    signal: Signal, body: bytes, rejected: int
) -> None:
    """Anything else is counted, as it may be meant for no run."""
    decoded = decode(signal, body)

    assert [problem.reason for problem in decoded.problems] == ["no_run"] * rejected
    assert all("set rl.run.id, or service.name" in problem.detail for problem in decoded.problems)
    assert decoded.unattributed == (0 if rejected else 2)


IDENTITIES: list[Value] = ["r", "12", "", 48151623, 0, -1, 3.0, 3.5, True, b"r", [1], {"a": 1}, None]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("where", ["resource", "item", "both"])
@pytest.mark.parametrize("key", ["rl.run.id", "overwatch.env.id", "overwatch.rank", SERVICE])
def test_every_reader_takes_identities_alike(identity: Value, where: str, key: str) -> None:
    """From protobuf and from JSON; a key given twice counts once, the last."""
    twice: Named = [(key, "before"), (key, identity)]
    resource: Named = [("rl.run.id", "first")] if key != "rl.run.id" else [(SERVICE, "s")]
    resource += twice if where != "item" else []
    own = twice if where != "resource" else []
    for at in range(8):
        bodies = (
            (Signal.METRICS, metrics(resource, *[KL, LOSS, "overwatch.env.reward"] * 8, point=own, at=at)),
            (Signal.LOGS, logs(resource, "overwatch.measured", own=own, at=at)),
            (Signal.LOGS, logs(resource, *["overwatch.env_crashed"] * 16, own=own, at=at)),
        )
        for signal, body in bodies:
            general = decode(signal, body)
            text = to_json(signal, body)
            assert repr(decode(signal, from_json(signal, text))) == repr(general)


@pytest.mark.parametrize(("identity", "run_id"), [(48151623, "48151623"), (7.0, "7"), ("7", "7")])
def test_a_number_names_a_run(identity: Value, run_id: str) -> None:
    """On the resource and on the item, in logs and in metrics."""
    named: Named = [("rl.run.id", identity)]
    for signal, body in (
        (Signal.METRICS, metrics(named, KL)),
        (Signal.METRICS, metrics([], KL, point=named)),
        (Signal.LOGS, logs(named, "overwatch.measured")),
        (Signal.LOGS, logs([], "overwatch.measured", own=named)),
    ):
        assert [record.origin.run_id for record in decode(signal, body).records] == [run_id]


def test_text_names_an_env_a_rank_and_numbers_name_a_lane_a_slot_and_a_seed() -> None:
    """In points, in facts and in lines of other programs."""
    base: Named = [("rl.run.id", 5), ("overwatch.rank", "2"), (INSTANCE, 9)]
    (reward,) = decode(
        Signal.METRICS, metrics(base, "overwatch.env.reward", point=[("overwatch.env.id", "7")])
    ).records
    assert isinstance(reward.event, Measured)
    assert reward.event.keys["env_id"].array().tolist() == [7]
    assert (reward.origin.rank, reward.origin.epoch) == (2, "9")
    (gpu,) = decode(
        Signal.METRICS, metrics(base, "hw.gpu.utilization", point=[("overwatch.lane.id", 0)])
    ).records
    assert isinstance(gpu.event, Measured)
    assert gpu.event.keys["gpu_id"].labels == ("0",)
    own: Named = [("overwatch.env.id", "3"), ("overwatch.slot.id", 4), ("overwatch.seed.id", 11)]
    crash, line = (
        record.event
        for record in decode(Signal.LOGS, logs(base, "overwatch.env_crashed", "x", own=own)).records
    )
    assert isinstance(crash, EnvCrashed)
    assert crash.env_id == 3
    assert isinstance(line, LogLine)
    assert (line.env_id, line.slot, line.seed_id) == (3, "4", "11")


@pytest.mark.parametrize(
    ("reported", "error"),
    [
        ({}, ""),
        ({"overwatch.error": ""}, ""),
        ({"overwatch.error": "boom", "error.type": "T"}, "boom"),
        ({"error.type": "SegFault"}, "SegFault"),
        ({"exception.type": "ValueError", "exception.message": "nan"}, "ValueError: nan"),
        ({"exception.message": "nan"}, "nan"),
        ({"error.type": 139}, "139"),
    ],
)
def test_a_crash_counts_however_it_is_described(reported: dict[str, Value], error: str) -> None:
    """In our words, in OpenTelemetry's, or in none."""
    own = [("overwatch.env.id", 3), *reported.items()]
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(pairs([("rl.run.id", "r")]))
    record = named.scope_logs.add().log_records.add(time_unix_nano=START_NS)
    record.event_name = "overwatch.env_crashed"
    record.attributes.extend(pairs([*own, ("exception.stacktrace", "at line 3")]))
    (found,) = decode(Signal.LOGS, message.SerializeToString()).records

    assert found.event == EnvCrashed(at=START_NS, env_id=3, error=error, traceback="at line 3")
    fold = fold_of((Signal.LOGS, message.SerializeToString()))
    assert fold.look([(None, DEFAULT_VIEW)])["r", DEFAULT_VIEW].counters["crashes"] == 1.0

"""A record's template says what the general path says, or nothing."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overwatch.catalog import Scope
from overwatch.events import (
    ActionTaken,
    Column,
    Conflated,
    Event,
    LogLine,
    Measured,
    Origin,
    Record,
    Severity,
    scalars,
)
from overwatch.otlp.decode import spoken
from overwatch.otlp.encode import log_record
from overwatch.otlp.record_template import RecordTemplate, learn_record
from tests.overwatch.otlp.strategies import EVENTS, measured

T = 1_790_000_000_000_000_000
ORIGIN = Origin(run_id="r", epoch="e", ours=True)


def bytes_of(event: Event, seq: int | None = 300) -> bytes:
    """A log record on the wire."""
    return log_record(Record(origin=ORIGIN, event=event, seq=seq)).SerializeToString()


def policy(number: int, *, criticals: int = 2) -> Measured:
    """An update of the policy, folded of several."""
    names = ("overwatch.policy.kl_divergence", "overwatch.policy.entropy", "loss.of.mine")
    told = {name: Column.scalar(number + place / 8) for place, name in enumerate(names)}
    return Measured(
        at=T + number,
        scope=Scope.POLICY,
        values=told,
        index=1000 + number,
        conflated=Conflated(
            n=3,
            first=998 + number,
            low=told,
            high=told,
            warnings={names[0]: 5},
            criticals={names[0]: criticals},
        ),
    )


def envs(number: int, lanes: tuple[str, ...] = ("GPU-a", "GPU-b", "GPU-a")) -> Measured:
    """A step of some envs, with the lane of each."""
    values = {"overwatch.env.reward": Column.of([number + 0.5, 2.0, 3.0]), "lane": Column.of_labels(lanes)}
    keys = {"env_id": Column.of([1, 2, 3 + number])}
    return Measured(at=T + number, scope=Scope.ENV, values=values, keys=keys, index=500 + number)


def taught(event: Event, seq: int = 300) -> RecordTemplate:
    """The template of an event's record."""
    template = learn_record(bytes_of(event, seq))
    assert template is not None
    return template


def agrees(template: RecordTemplate, record: bytes) -> bool:
    """Whether the template reads a record, which must be as the general path does."""
    said = template.read(record)
    if said is None:
        return False
    assert said == spoken(LogRecord.FromString(record))
    return True


def host(number: int) -> Measured:
    """Two numbers of a machine."""
    return Measured(at=T + number, scope=Scope.HOST, values=scalars({"a": 1.5 + number, "b": -0.0}))


def acted(number: int) -> ActionTaken:
    """What a policy did with two envs."""
    ops, ids = Column.of_labels(["grow", "prune"]), Column.of([number, 2])
    return ActionTaken(at=T + number, env_id=ids, op=ops, step=400 + number)


@pytest.mark.parametrize("make", [policy, envs, host, acted])
def test_the_next_one_of_its_kind_is_read(make: Callable[[int], Event]) -> None:
    """Other numbers, the same names: no parser is needed."""
    template = taught(make(1))
    assert agrees(template, bytes_of(make(7), 301))


def test_numbers_of_another_width_are_left_to_the_parser() -> None:
    """A count that grows a byte changes the lengths around it."""
    template = taught(policy(1), seq=127)
    assert not agrees(template, bytes_of(policy(2), 128))
    assert not agrees(template, bytes_of(policy(2, criticals=300), 127))
    assert agrees(template, bytes_of(policy(2, criticals=127), 100))


def test_what_changes_beside_numbers_is_left_to_the_parser() -> None:
    """Another scope, name, dtype or severity is another shape, of the same length too."""
    template = taught(envs(1))
    record = bytes_of(envs(2))
    for old, new in ((b"env", b"vne"), (b"<f8", b"<i8"), (b"GPU-a", b"GPU-c"), (b"reward", b"drawer")):
        assert old in record
        assert not agrees(template, record.replace(old, new))


def test_words_that_other_envs_have_are_read() -> None:
    """Which env is on which lane may change; a lane that there is not may not."""
    template = taught(envs(1))
    assert agrees(template, bytes_of(envs(2, ("GPU-a", "GPU-b", "GPU-b"))))
    record = bytes_of(envs(2))
    (lanes,) = [column.data for name, column in envs(2).values.items() if name == "lane"]
    assert record.count(lanes) == 1
    assert not agrees(template, record.replace(lanes, b"\x07" * len(lanes)))


def test_a_record_without_a_time_is_left_to_the_parser() -> None:
    """A zero time that is written out, and one beyond what a clock tells."""
    template = taught(envs(1))
    record = bytes_of(envs(2))
    time = (T + 2).to_bytes(8, "little")
    for other in (bytes(8), b"\xff" * 8):
        assert template.read(record.replace(time, other)) is None


def test_values_that_are_not_finite_as_attributes_are_left_to_the_parser() -> None:
    """NaN and infinity have many spellings."""
    told = Measured(at=T, scope=Scope.HOST, values=scalars({"a": 1.0}))
    template = taught(told)
    for odd in (float("nan"), float("inf")):
        other = msgspec.structs.replace(told, values=scalars({"a": odd}))
        assert template.read(bytes_of(other)) is None


def test_only_measurements_and_columns_are_learned() -> None:
    """Lines of a log are never alike; names given twice have no certain meaning."""
    line = LogLine(at=T, severity=Severity.INFO, message="hello", subsystem="x")
    assert learn_record(bytes_of(line)) is None
    twice = LogRecord.FromString(bytes_of(envs(1)))
    twice.attributes.append(KeyValue(key="overwatch.seq", value=AnyValue(int_value=900)))
    assert learn_record(twice.SerializeToString()) is None
    merged = bytes_of(envs(1)) + LogRecord(body=AnyValue(string_value="x")).SerializeToString()
    assert learn_record(merged) is None


@given(EVENTS | measured(), st.integers(0, 2**40), st.data())
def test_whatever_is_learned_agrees_with_the_parser(event: Event, seq: int, data: st.DataObject) -> None:
    """Any event, any of its bytes changed: the same as the general path, or nothing."""
    record = bytes_of(event, seq)
    template = learn_record(record)
    if template is None:
        return
    assert agrees(template, record)
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    said = template.read(bytes(changed))
    if said is not None:
        assert said == spoken(LogRecord.FromString(bytes(changed)))


@given(st.integers(0, 2**32))
def test_other_numbers_of_any_bits_agree_with_the_parser(seed: int) -> None:
    """Every byte of every column may be anything."""
    dice = random.Random(seed)  # noqa: S311 the same each time
    made = [_anything(dice, turn) for turn in range(3)]
    template = taught(made[0])
    assert all(agrees(template, bytes_of(one)) for one in made)


def _anything(dice: random.Random, turn: int) -> Measured:
    eights, ones = dice.randbytes(16), dice.randbytes(2)
    high = {"a": Column(dtype="<f4", data=dice.randbytes(8))}
    return Measured(
        at=T + turn,
        scope=Scope.ENV,
        keys={"env_id": Column.of([turn, 5])},
        values={"a": Column(dtype="<f8", data=eights), "b": Column(dtype="|u1", data=ones)},
        index=dice.randrange(1, 128),
        conflated=Conflated(n=dice.randrange(1, 128), high=high),
    )

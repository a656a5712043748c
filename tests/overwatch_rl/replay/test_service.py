"""The facade: tables by name, encodings, limiters."""

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.base import Capacity, Refused, TableConfig, Taken, Wait
from overwatch_rl.replay.calls import Calls
from overwatch_rl.replay.chunk import Column, Encoding
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.service import KINDS, KindError, Replay, UndeclaredError, UnknownTableError
from tests.overwatch_rl.replay.sequencing import ENCODING, chunk_of, memory

STEPS = TableConfig(
    name="s",
    kind="steps",
    selector="uniform",
    remover="oldest",
    capacity=Capacity(items=64),
    rate=Rate(samples_per_insert=2.0, min_steps=4, buffer=8.0),
)
FLAT = Encoding(
    (
        Column("observation", "int32"),
        Column("action", "uint8"),
        Column("reward", "float32"),
        Column("final_observation", "int32", per_step=False),
    )
)


def transitions(count: int) -> list[pb.Transition]:
    """Steps of one episode."""
    return [
        pb.Transition(
            env_id="e",
            step_number=number,
            observation=np.int32(number).tobytes(),
            action=b"\1",
            next_observation=np.int32(number + 1).tobytes(),
            reward=1.0,
            done=False,
        )
        for number in range(count)
    ]


def test_an_encoding_is_declared_once() -> None:
    """Again is nothing; another one is refused by the column in which they differ."""
    replay = Replay([memory()])
    for store in (lambda: replay.append("t", "", [chunk_of(0)]), lambda: replay.store("t", transitions(1))):
        with pytest.raises(UndeclaredError, match=r"table 't' has no encoding yet: .* call Declare"):
            store()
    declared = replay.declare("t", ENCODING)

    assert declared == replay.declare("t", ENCODING) == ENCODING.hash
    assert replay.encoding("t") == ENCODING
    with pytest.raises(
        ValueError, match=r"table 't' has another encoding: it has Column.*'value'.*'observation'"
    ):
        replay.declare("t", FLAT)
    with pytest.raises(UnknownTableError, match="table 'u' is none of t"):
        replay.declare("u", ENCODING)


def test_chunks_of_another_encoding_or_length_are_refused_whole() -> None:
    """Nothing of the request is taken; the reason is counted."""
    replay = Replay([memory()])
    replay.declare("t", ENCODING)
    other = replay.append("t", FLAT.hash, [chunk_of(0)])
    lacking = msgspec.structs.replace(chunk_of(1), columns={"tag": bytes(80)})
    wrong = replay.append("t", ENCODING.hash, [chunk_of(0), lacking])

    assert isinstance(other, Refused)
    assert other.reason == "encoding"
    assert isinstance(wrong, Refused)
    assert wrong.message == "chunks[1]: column 'value' of a chunk of 'a' is missing"
    assert replay.tables["t"].refused == {"encoding": 1, "invalid": 1}
    assert replay.stats()[0].items == 0


def test_each_kind_offers_its_own() -> None:
    """Sequences are leased, steps are sampled; the other is refused by name."""
    replay = Replay([memory(), STEPS])
    replay.declare("t", ENCODING)
    replay.declare("s", FLAT)
    with pytest.raises(KindError, match="table 't' holds sequences, which are leased, not sampled"):
        replay.sample("t", 1)
    with pytest.raises(KindError, match="table 's' holds steps, which are sampled, not leased"):
        replay.lease("s", "l", 1, 0)

    assert set(KINDS) == {"sequences", "steps"}


def test_a_limiter_holds_each_side_back() -> None:
    """Below the minimum no sample; beyond the ratio no insert; each may go on after the other."""
    replay = Replay([STEPS])
    calls: list[None] = []
    replay.changed = lambda: calls.append(None)
    replay.declare("s", FLAT)
    assert replay.sample("s", 4) is None
    assert isinstance(replay.store("s", transitions(10)), Taken)

    assert replay.store("s", transitions(1)) == Wait(reason="limiter")
    assert len(calls) == 1
    sampled = replay.sample("s", 12)
    assert sampled is not None
    assert len(sampled.slots) == 12
    assert len(calls) == 2
    assert isinstance(replay.store("s", transitions(1)), Taken)
    while replay.sample("s", 4) is not None:
        pass
    assert replay.clear("s", pb.ClearRequest()) == 11
    assert isinstance(replay.store("s", transitions(2)), Taken)


def test_a_priority_that_is_stored_decides_what_is_drawn() -> None:
    """A step without one has the largest so far; one in a table without priorities is refused."""
    replay = Replay([replace(STEPS, selector="prioritised", rate=Rate()), replace(STEPS, name="u")])
    for name in "su":
        replay.declare(name, FLAT)
    steps = transitions(8)
    for step in steps[1:]:
        step.priority = 0.0
    assert isinstance(replay.store("s", steps), Taken)

    sampled = replay.sample("s", 2_000)
    assert sampled is not None
    assert np.mean(sampled.columns["observation"] == 0) > 0.9
    steps[0].priority = 5.0
    refused = replay.store("u", steps)
    assert isinstance(refused, Refused)
    assert refused.message.startswith(
        "transitions[0].priority is set; the table's selector has no priorities"
    )
    with pytest.raises(KindError, match="table 'u' is uniform: its steps have no priorities"):
        replay.update_priorities("u", sampled.slots[:1], sampled.generations[:1], np.ones(1))


def test_a_table_too_small_for_its_limiter_is_refused() -> None:
    """It would wait for ever."""
    replay = Replay([replace(STEPS, rate=Rate(min_steps=65))])
    with pytest.raises(ValueError, match="table 's' has room for 64 single steps, too few for min_steps 65"):
        replay.declare("s", FLAT)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([memory(), memory()], "two tables are named 't'"),
        ([replace(memory(), selector="uniform")], "table 't': selector 'uniform' is not fifo"),
        ([replace(memory(), kind="trees")], "table 't': kind 'trees' is none of sequences, steps"),
    ],
)
def test_tables_that_contradict_each_other_are_refused(configs: list[TableConfig], expected: str) -> None:
    """By name, before anything is served."""
    with pytest.raises(ValueError, match=expected):
        Replay(configs)


def test_a_cursor_that_does_not_fit_changes_nothing() -> None:
    """A learner that resumed there could not be answered any more."""
    replay = Replay([memory()])
    replay.declare("t", ENCODING)
    request = pb.ResumeRequest(table="t", learner="l", cursor=(1 << 63) - 1)

    with pytest.raises(ValueError, match="cursor is 9223372036854775807"):
        asyncio.run(Calls(replay).resume(request))
    assert asyncio.run(Calls(replay).resume(pb.ResumeRequest(table="t", learner="l"))).next_number == 1


def test_leases_of_all_tables_end_by_time() -> None:
    """By the facade's clock."""
    now = [1_000]
    replay = Replay([memory(), replace(memory(), name="u"), STEPS], lambda: now[0])
    for name in "tu":
        replay.declare(name, ENCODING)
        replay.append(name, ENCODING.hash, [chunk_of(0)])
        replay.lease(name, "l", 1, 0)
    replay.declare("s", FLAT)
    assert replay.extend("u", "l") == 1
    now[0] += 60 * 10**9

    assert replay.expire() == 2

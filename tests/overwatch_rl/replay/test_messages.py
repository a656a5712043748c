"""Messages of the replay service and back, and that no bytes lead a decoder astray."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.base import ItemId, LeasedChunk, LeaseOf, Sampled, TableStats
from overwatch_rl.replay.chunk import End
from tests.overwatch_rl.replay.serving import ENCODING, chunk

ROWS = 3


def sampled(**columns: Any) -> Sampled:
    """Three steps."""
    numbers = np.arange(ROWS, dtype=np.int64)
    return Sampled(
        slots=numbers, generations=numbers + 7, lineages=numbers, versions=numbers + 1,
        available=9, accepted=12, weights=np.linspace(0.5, 1, ROWS, dtype=np.float32),
        columns={
            "observation": np.arange(9, dtype=np.float32).reshape(ROWS, 3),
            "next_observation": np.arange(9, 18, dtype=np.float32).reshape(ROWS, 3),
            "action": numbers * 2, "reward": np.linspace(0, 1, ROWS, dtype=np.float32),
            "terminated": np.array([True, False, False]), "truncated": np.array([False, True, False]),
            **columns,
        },
    )  # fmt: skip


def answered(of: Sampled) -> pb.SampleResponse:
    """As it goes over the wire."""
    answer = pb.SampleResponse(
        total_available=of.available, accepted=of.accepted, rows=messages.rows_message(of)
    )
    return pb.SampleResponse.FromString(answer.SerializeToString())


def test_an_encoding_comes_back_as_it_was() -> None:
    """The same hash, so the same meaning."""
    assert messages.encoding_of(messages.encoding_message(ENCODING)).hash == ENCODING.hash


def read(body: bytes) -> LeaseOf:
    """As the client does."""
    answer = messages.parsed(pb.SampleStreamResponse, body)
    return messages.lease_of(answer.lease, "l", ENCODING)


def streamed(lease: LeaseOf) -> bytes:
    """As the server does."""
    return pb.SampleStreamResponse(lease=messages.lease_message(lease, ENCODING)).SerializeToString()


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut"])
def test_a_lease_comes_back_as_it_was(end: End) -> None:
    """With the bytes of all columns, and its flags."""
    item = LeasedChunk(id=ItemId(3, 1 << 40), chunk=chunk(end=end), is_redelivered=True, at=99)
    lease = LeaseOf(learner="l", number=5, items=(item,), deadline=1 << 60)
    back = read(streamed(lease))
    assert (back.number, back.deadline, back.items[0].id) == (5, 1 << 60, item.id)
    found, sent = ENCODING.decode(back.items[0].chunk), ENCODING.decode(item.chunk)
    assert found.keys() == sent.keys()
    assert all(np.array_equal(found[name], sent[name]) for name in sent)


def test_a_columnar_sample_comes_back_as_it_was() -> None:
    """Every array with its type."""
    back = messages.sampled_of(answered(sampled()), ENCODING)
    for name, rows in sampled().columns.items():
        assert back.columns[name].dtype == rows.dtype
        assert np.array_equal(back.columns[name], rows)
    assert np.array_equal(back.weights, sampled().weights)
    assert back.generations.tolist() == [7, 8, 9]
    assert (back.available, back.accepted) == (9, 12)


def test_a_sample_as_transitions_has_discrete_actions_as_integers() -> None:
    """And states which steps ended an episode, by what."""
    steps = list(messages.transition_messages(sampled()))
    assert [int.from_bytes(step.action, "little") for step in steps] == [0, 2, 4]
    assert [step.done for step in steps] == [True, True, False]
    assert [step.metadata["truncated"] for step in steps] == ["false", "true", "false"]
    assert steps[2].id == "2:9"
    assert steps[2].metadata["version"] == "3"


@pytest.mark.parametrize("name", ["slots", "weights", "versions"])
def test_a_sample_with_a_wrong_length_is_refused_by_name(name: str) -> None:
    """A byte too few, and one too many."""
    for data in (lambda body: body[:-1], lambda body: body + b"\0"):
        answer = answered(sampled())
        setattr(answer.rows, name, data(getattr(answer.rows, name)))
        with pytest.raises(ValueError, match=rf"rows\.{name} has"):
            messages.sampled_of(answer, ENCODING)


def test_a_sample_that_lacks_a_column_or_has_another_is_refused() -> None:
    """Each by its name."""
    answer = answered(sampled())
    del answer.rows.columns["reward"]
    with pytest.raises(ValueError, match="lack reward"):
        messages.sampled_of(answer, ENCODING)
    with pytest.raises(ValueError, match=r"columns\.extra: the encoding has none"):
        messages.sampled_of(answered(sampled(extra=np.zeros(ROWS))), ENCODING)
    answer = answered(sampled())
    answer.rows.columns["terminated"] = b"\2\0\0"
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        messages.sampled_of(answer, ENCODING)


def body_of_lease() -> bytes:
    """A right lease."""
    item = LeasedChunk(id=ItemId(3, 1), chunk=chunk(), is_redelivered=False, at=9)
    lease = LeaseOf(learner="l", number=5, items=(item, item), deadline=1)
    return streamed(lease)


EDITS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)
RIGHT_LEASE = body_of_lease()
RIGHT_SAMPLE = answered(sampled()).SerializeToString()


@given(EDITS, st.integers(0, len(RIGHT_LEASE)))
def test_no_bytes_make_a_lease_that_cannot_be_decoded(edits: list[tuple[int, int]], cut: int) -> None:
    """Changed, cut or right: an error, or arrays that hold exactly the bytes of their columns."""
    try:
        lease = read(edited(RIGHT_LEASE, edits, cut))
    except ValueError:
        return
    for item in lease.items:
        for name, rows in ENCODING.decode(item.chunk).items():
            assert rows.nbytes == len(item.chunk.columns[name])


@given(EDITS, st.integers(0, len(RIGHT_SAMPLE)))
def test_no_bytes_make_a_sample_that_cannot_be_decoded(edits: list[tuple[int, int]], cut: int) -> None:
    """As for leases."""
    try:
        found = messages.sampled_of(pb.SampleResponse.FromString(edited(RIGHT_SAMPLE, edits, cut)), ENCODING)
    except (ValueError, DecodeError):
        return
    assert all(len(rows) == len(found.slots) for rows in found.columns.values())


def edited(body: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    """With some bytes changed, and without an end in half of the cases."""
    made = bytearray(body if cut % 2 else body[:cut])
    for place, value in edits:
        if made:
            made[place % len(made)] = value
    return bytes(made)


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_the_sender(body: bytes) -> None:
    """Whatever parses has no chunk of the encoding."""
    try:
        request = messages.parsed(pb.AppendRequest, body)
        for place, one in enumerate(request.chunks):
            ENCODING.check(messages.chunk_of(one, ENCODING, f"chunks[{place}]"))
    except ValueError:
        return
    assert not request.chunks


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "-1:2", "1:2:3", "a:b", "1:²"])
def test_an_id_that_was_never_sampled_is_refused(text: str) -> None:
    """By its place."""
    with pytest.raises(ValueError, match=r"ids\[0\]"):
        messages.ids_of(pb.UpdatePrioritiesRequest(ids=[text], new_priorities=[1.0]))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (pb.UpdatePrioritiesRequest(ids=["1:2"]), "new_priorities are 0"),
        (pb.UpdatePrioritiesRequest(ids=["1:2"], slots=b"12345678", new_priorities=[1]), "use one"),
        (pb.UpdatePrioritiesRequest(slots=bytes(8), generations=bytes(7), new_priorities=[1]), "generations"),
    ],
)
def test_priorities_belong_to_as_many_steps(request_: pb.UpdatePrioritiesRequest, words: str) -> None:
    """Otherwise nothing is set."""
    with pytest.raises(ValueError, match=words):
        messages.ids_of(request_)


def test_stats_come_back_with_what_is_absent_absent() -> None:
    """And the origin's sums are over all tables."""
    one = TableStats(name="a", kind="steps", items=3, steps=3, bytes=9, accepted=4, envs={"e": 3}, episodes=2,
                     oldest=5, newest=6)  # fmt: skip
    other = TableStats(name="b", kind="sequences", items=1, steps=4, bytes=1, accepted=1, queued=1, leases=0,
                       removed={"cleared": 2}, late={"ack": 1}, envs={"e": 4}, newest=8, is_full=True,
                       most_items=9)  # fmt: skip
    message = messages.stats_message([one, other])
    assert (message.total_transitions, message.total_episodes, message.storage_bytes) == (7, 2, 10)
    assert (message.oldest_timestamp, message.newest_timestamp) == (5, 8)
    assert dict(message.transitions_by_env) == {"e": 7}
    back = [messages.table_of(table) for table in message.tables]
    assert (back[0].leases, back[1].leases, back[1].removed, back[1].late) == (
        None,
        0,
        {"cleared": 2},
        {"ack": 1},
    )
    assert [(table.is_full, table.most_items, table.most_bytes) for table in back] == [
        (False, None, None), (True, 9, None),
    ]  # fmt: skip
    assert not messages.stats_message([]).HasField("oldest_timestamp")

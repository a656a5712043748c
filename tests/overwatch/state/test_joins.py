"""Ranks without a run id find their run."""

import msgspec

from overwatch.events import Origin, Record
from overwatch.state.sources import MAX_WAITING, Joins
from tests import fakes
from tests.fakes import START_NS


def _record(rank: int, epoch: str, run_id: str = "pending-k", index: int = 1) -> Record:
    origin = Origin(run_id=run_id, rank=rank, epoch=epoch, join="k", ours=True)
    return Record(origin=origin, event=fakes.policy(START_NS, index=index, entropy=0.5), seq=index)


def test_ranks_that_came_first_move_to_the_run_that_rank_0_announces() -> None:
    """They wait under one stand-in; the announcement gives them back in order, under the run's id."""
    joins = Joins()
    for rank in (1, 2, 3):
        assert joins.resolve(_record(rank, f"e{rank}"), rank).record.origin.run_id == "pending-k"
    found = joins.resolve(_record(0, "e0", "ant-1"), 9)

    assert found.record.origin.run_id == "ant-1"
    assert found.stand_ins == {"pending-k"}
    assert [(record.origin.rank, stamp) for record, stamp in found.released] == [(1, 1), (2, 2), (3, 3)]
    assert {record.origin.run_id for record, _ in found.released} == {"ant-1"}


def test_ranks_that_come_later_belong_at_once() -> None:
    """Nothing waits once rank 0 has spoken; rank 0's next records release nothing."""
    joins = Joins()
    joins.resolve(_record(0, "e0", "ant-1"), 1)
    assert joins.resolve(_record(5, "e5"), 2).record.origin.run_id == "ant-1"
    again = joins.resolve(_record(0, "e0", "ant-1"), 3)
    assert (again.released, again.stand_ins) == ([], frozenset())


def test_the_next_launch_at_the_same_place_is_another_run() -> None:
    """A second life of a rank waits for a second announcement instead of joining the run before."""
    joins = Joins()
    joins.resolve(_record(0, "e0", "ant-1"), 1)
    joins.resolve(_record(1, "e1"), 2)
    assert joins.resolve(_record(1, "later"), 3).record.origin.run_id == "pending-k"
    found = joins.resolve(_record(0, "later0", "ant-2"), 4)
    assert [record.origin.run_id for record, _ in found.released] == ["ant-2"]
    assert joins.resolve(_record(1, "later"), 5).record.origin.run_id == "ant-2"


def test_waiting_is_bounded_and_counted() -> None:
    """The oldest record gives way."""
    joins = Joins()
    record = _record(1, "e1")
    for stamp in range(MAX_WAITING + 3):
        joins.resolve(record, stamp)
    assert joins.launches["k"].forgotten == 3
    assert joins.resolve(_record(0, "e0", "ant-1"), 0).released[0][1] == 3


def test_it_survives_a_checkpoint() -> None:
    """What waits is part of the saved state."""
    joins = Joins()
    joins.resolve(_record(1, "e1"), 7)
    loaded = msgspec.msgpack.decode(msgspec.msgpack.encode(joins), type=Joins)
    assert loaded.resolve(_record(0, "e0", "ant-1"), 8).released[0][0].origin.run_id == "ant-1"

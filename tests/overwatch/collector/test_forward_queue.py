"""What is on its way to one target: turns, and the place in the journal."""

from pathlib import Path

import pytest

from overwatch.collector.exporters.forward_queue import (
    MOST_WAITING,
    Passed,
    Shipment,
    Turns,
    producer,
    shipment,
)
from overwatch.events import Record
from overwatch.journal import Batch, CursorFile, Folder, Place, Signal
from overwatch.otlp.encode import request
from tests.overwatch.collector.running import origin, run_started


def ship(sequence: int, line: str, size: int = 1) -> Shipment:
    """A shipment of a line."""
    return Shipment(signal=Signal.LOGS, body=b"x" * size, sequence=sequence, line=line.encode())


class Ends:
    """Notes how shipments ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, str | None]] = []

    def __call__(self, done: Shipment, rejected: int, reason: str | None) -> None:
        """One more."""
        self.seen.append((done.sequence, rejected, reason))


def test_one_line_keeps_its_order_and_others_go_beside_it() -> None:
    """Two takers get two lines; the second shipment of a line comes when the first is settled."""
    ends = Ends()
    turns = Turns(ends)
    turns.put(ship(1, "a"))
    first = turns.take(0)
    for waiting in (ship(2, "a"), ship(3, "b")):
        turns.put(waiting)

    second = turns.take(0)
    assert first is not None
    assert second is not None
    assert (first.sequence, second.sequence) == (1, 3)
    assert turns.take(0) is None
    turns.landed(first, 2)
    third = turns.take(0)
    assert third is not None
    assert third.sequence == 2
    turns.lost(third, "expired")
    assert not turns.wait_empty(0)
    turns.landed(second, 0)
    assert turns.wait_empty(0)
    assert ends.seen == [(1, 2, None), (2, 0, "expired"), (3, 0, None)]
    assert turns.lines == 0


def test_what_waits_is_joined_by_signal_and_up_to_a_size() -> None:
    """Bytes end to end, one signal at a time; settled together, with all their sequences."""
    ends = Ends()
    turns = Turns(ends)
    points = Shipment(signal=Signal.METRICS, body=b"m", sequence=3, line=b"a")
    for waiting in (ship(1, "a"), ship(2, "a", 2), points, ship(4, "a", 700_000), ship(5, "a", 700_000)):
        turns.put(waiting)

    seen = []
    while (taken := turns.take(0)) is not None:
        seen.append((taken.signal, len(taken.body), taken.sequences))
        turns.landed(taken, 0)
    assert seen == [
        (Signal.LOGS, 3, (1, 2)),
        (Signal.METRICS, 1, (3,)),
        (Signal.LOGS, 700_000, (4,)),
        (Signal.LOGS, 700_000, (5,)),
    ]
    assert turns.wait_empty(0)
    assert turns.wait_room(0)


def test_what_is_refused_together_is_tried_apart() -> None:
    """Nobody pays for another's fault; what is given up for another reason is given up together."""
    ends = Ends()
    turns = Turns(ends)
    for number in (1, 2, 3):
        turns.put(ship(number, "a"))
    joined = turns.take(0)
    assert joined is not None
    turns.lost(joined, "refused_400")
    for reason in (None, "refused_400", None):
        part = turns.take(0)
        assert part is not None
        assert part.parts == ()
        if reason is None:
            turns.landed(part, 0)
        else:
            turns.lost(part, reason)
    assert ends.seen == [(1, 0, None), (2, 0, "refused_400"), (3, 0, None)]
    for number in (4, 5):
        turns.put(ship(number, "a"))
    joined = turns.take(0)
    assert joined is not None
    turns.lost(joined, "expired")
    assert ends.seen[-1] == (4, 0, "expired")
    assert turns.wait_empty(0)


def test_room_is_bounded_in_number_and_bytes() -> None:
    """A large shipment or many small ones leave none, and settling gives it back."""
    turns = Turns(Ends())
    for number in range(MOST_WAITING):
        assert turns.wait_room(0)
        turns.put(ship(number, "a"))
    assert not turns.wait_room(0)
    assert len(turns.clear()) == MOST_WAITING
    turns.put(ship(1, "a", size=9 << 20))
    assert not turns.wait_room(0)
    taken = turns.take(0)
    assert taken is not None
    turns.landed(taken, 0)
    assert turns.wait_room(0)


def test_clearing_leaves_what_is_taken() -> None:
    """What a sender has is settled by the sender; at the end all that is left can be taken out."""
    turns = Turns(Ends())
    turns.put(ship(1, "a"))
    taken = turns.take(0)
    for waiting in (ship(2, "a"), ship(3, "a"), ship(4, "b")):
        turns.put(waiting)

    assert [gone.sequence for gone in turns.clear()] == [2, 3, 4]
    assert len(turns) == 1
    assert taken is not None
    assert [gone.sequence for gone in turns.clear(taken=True)] == [1]
    assert turns.wait_empty(0)


def test_the_place_is_before_the_first_that_is_not_settled() -> None:
    """Whatever order the ends come in."""
    passed = Passed(None, 5)
    assert passed.position == 5
    assert all(passed.begin(sequence) for sequence in (5, 6, 9))
    passed.settle([9])
    assert passed.position == 5
    passed.settle([5])
    assert passed.position == 6
    passed.settle([6])
    assert passed.position == 10
    passed.skip_to(20)
    assert passed.position == 20


def test_the_next_life_sends_only_what_was_not_settled(tmp_path: Path) -> None:
    """Place and what is settled after it survive together."""
    with_lock = Folder(tmp_path / "j")
    passed = Passed(CursorFile(with_lock, "otlp"), 1)
    for sequence in range(1, 11):
        passed.begin(sequence)
    passed.settle([1, 2, 4, 5, 6, 9])
    passed.save(sync=True)
    passed.close()

    kept = CursorFile(with_lock, "otlp")
    assert kept.place is not None
    again = Passed(kept, kept.place.position)
    assert [sequence for sequence in range(3, 11) if again.begin(sequence)] == [3, 7, 8, 10]
    with_lock.close()


def test_a_place_of_many_pieces_fits_and_loses_nothing(tmp_path: Path) -> None:
    """What does not fit beside the place is sent again; nothing that is not settled is passed over."""
    folder = Folder(tmp_path / "j")
    passed = Passed(CursorFile(folder, "otlp"), 1)
    for sequence in range(1, 10_001):
        passed.begin(sequence)
    passed.settle(range(2, 10_001, 2))
    passed.save()

    kept = CursorFile(folder, "otlp")
    again = Passed(kept, 1)
    left = [sequence for sequence in range(1, 10_001) if again.begin(sequence)]
    assert set(range(1, 10_001, 2)) <= set(left)
    assert len(left) < 10_000
    folder.close()


def test_a_note_that_cannot_be_read_sends_more_again(tmp_path: Path) -> None:
    """Never less."""
    folder = Folder(tmp_path / "j")
    CursorFile(folder, "otlp").save(Place(position=3, note=b"\xc1 no note"))
    again = Passed(CursorFile(folder, "otlp"), 3)

    assert again.begin(3)
    assert again.begin(4)
    folder.close()


def body(*runs: str) -> bytes:
    """A request of some producers."""
    return request([Record(origin=origin(run), event=run_started(), seq=1) for run in runs], {})


def test_the_line_of_a_request_is_its_producer() -> None:
    """The same resource is the same line, another is another, several share the one without a name."""
    assert producer(body("a")) == producer(body("a")) != b""
    assert producer(body("a")) != producer(body("b"))
    assert producer(body("a") + body("b")) == b""
    batch = Batch(sequence=7, stamp=1, signal=Signal.LOGS, body=body("a"))
    assert shipment(batch).line == producer(batch.body)


@pytest.mark.parametrize("garbage", [b"", b"\x0a", b"\x0a" + 6 * b"\xff", b"\x12\x01a", b"\x0a\x7fa"])
def test_what_has_no_producer_has_a_line_all_the_same(garbage: bytes) -> None:
    """Bytes of any kind are sent, in the line of those that are not known."""
    assert producer(garbage) in (b"", garbage[2:])

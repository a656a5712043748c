"""The queue of records on their way: order, limits, and an account that always adds up."""

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource

from overwatch.sdk.exporter.queue import MAX_BATCH, QueueLimits, SendQueue, Waiting

RECORD = ReadableLogRecord(log_record=LogRecord(timestamp=1), resource=Resource.get_empty())


def waiting(order: int, *, size: int = 10, fact: bool = False, counted: bool = True) -> Waiting:
    """A record of a size."""
    return Waiting(record=RECORD, order=order, size=size, fact=fact, counted=counted)


def test_records_leave_in_the_order_of_their_numbers() -> None:
    """Facts and numbers are one stream."""
    queue = SendQueue()
    for order in range(10):
        queue.put(waiting(order, fact=order % 3 == 0))
    assert [item.order for item in queue.take(0)] == list(range(10))


def test_old_numbers_give_way_to_facts() -> None:
    """At the limit the oldest numbers go; facts stay until only facts are left."""
    queue = SendQueue(QueueLimits(waiting_bytes=40))
    for order in range(4):
        queue.put(waiting(order))
    for order in range(4, 9):
        queue.put(waiting(order, fact=True))
    assert [item.order for item in queue.take(0)] == [4, 5, 6, 7]
    assert queue.dropped == {"exporter_full": 5}


def test_a_batch_is_bounded_in_number_and_size() -> None:
    """At most so many records and about a megabyte; a single larger record goes alone."""
    queue = SendQueue()
    for order in range(MAX_BATCH + 5):
        queue.put(waiting(order))
    assert len(queue.take(0)) == MAX_BATCH
    queue = SendQueue()
    for order, size in enumerate((600_000, 600_000, 3_000_000)):
        queue.put(waiting(order, size=size))
    assert [len(queue.take(0)) for _ in range(3)] == [1, 1, 1]


def test_it_is_empty_only_when_nothing_is_in_flight() -> None:
    """What was taken counts as pending until it has landed or is lost."""
    queue = SendQueue()
    queue.put(waiting(1))
    queue.put(waiting(2, counted=False))
    batch = queue.take(0)
    assert queue.pending == 1
    assert not queue.wait_empty(0)
    queue.landed(batch, rejected=5)
    assert queue.wait_empty(0)
    assert (queue.delivered, dict(queue.dropped)) == (0, {"rejected": 1})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), max_size=40),
    st.lists(st.sampled_from(["landed", "lost"]), max_size=10),
)
def test_every_counted_record_is_somewhere(records: list[tuple[int, bool, bool]], fates: list[str]) -> None:
    """Delivered, dropped or pending: nothing is counted twice, nothing is forgotten."""
    queue = SendQueue(QueueLimits(waiting_bytes=200, waiting_records=12))
    for order, (size, fact, counted) in enumerate(records):
        queue.put(waiting(order, size=size, fact=fact, counted=counted))
    for fate in fates:
        batch = queue.take(0)
        if fate == "landed":
            queue.landed(batch)
        else:
            queue.lost(batch, "refused")
    total = sum(counted for _, _, counted in records)
    assert queue.delivered + sum(queue.dropped.values()) + queue.pending == total

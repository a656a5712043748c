"""Delivery of device values: by a thread of its own, in order, bounded; each offer ends once."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from overwatch.sdk.device import BACKLOG, FAILED, PENDING, DeviceLimits
from overwatch.sdk.packing import Shape
from tests.overwatch.sdk.delivering import DEADLINE_S, FAST, HandHeld, Received, drain_threads, eventually

torch = pytest.importorskip("torch")


def test_no_value_of_a_tensor_is_delivered_in_the_thread_of_its_offer() -> None:
    """Those of the CPU are copied there and delivered by the drain thread, whatever is called meanwhile."""
    one, threads = Received(limits=FAST), list[str]()

    def note(_: object) -> None:
        threads.append(threading.current_thread().name)

    for number in range(50):
        one.values.offer({"a": torch.tensor(float(number))}, note)
        one.values.offer_arrays({"a": torch.ones(3)}, Shape.COLUMNS, note)
        one.values.look()
    assert eventually(lambda: len(threads) == 100)
    assert set(threads) == {"overwatch-device"}
    one.values.drain(0.0)


def test_what_has_no_tensor_is_delivered_at_once_and_needs_no_thread(received: Received) -> None:
    """Plain numbers are delivered before the offer returns, where nothing waits."""
    before = drain_threads()
    received.values.offer({"a": 1.0}, received.reported.append)
    assert received.reported == [{"a": 1.0}]
    assert drain_threads() == before


def test_a_thread_that_cannot_be_started_leaves_delivering_to_calls(
    received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the interpreter ends: the offer itself delivers, and each look does."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        received.values.offer({"a": torch.tensor(1.0)}, received.reported.append)
    assert received.reported == [{"a": 1.0}]


def test_tables_keep_their_values_in_order_whatever_their_shape(received: Received) -> None:
    """Tables of any dimensions and layouts come flat, row by row, with their own types."""
    table = torch.arange(24, dtype=torch.int16).reshape(2, 3, 4)
    came: list[dict[str, np.ndarray]] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        came.append(arrays)
        return lambda: True

    received.values.offer_arrays(
        {"a": table.transpose(0, 2), "b": table[0] > 3, "c": table[1]}, Shape.TABLES, take
    )
    received.values.settle(DEADLINE_S)
    ((arrays),) = came
    assert arrays["a"].tolist() == table.transpose(0, 2).flatten().tolist()
    assert (arrays["a"].dtype, arrays["b"].dtype) == (np.dtype("i2"), np.dtype(bool))
    assert arrays["c"].tolist() == list(range(12, 24))


def test_a_large_table_leaves_the_room_of_numbers_and_other_tables_wait_for_its_own() -> None:
    """It may be larger than all that may wait; a second one is dropped, numbers behind it are not."""
    one = Received(HandHeld(), DeviceLimits(waiting_bytes=64, period_s=600.0))
    tables: list[object] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        tables.append(len(arrays["a"]))
        return lambda: True

    one.values.offer_arrays({"a": torch.zeros(10, 10)}, Shape.TABLES, take)
    one.values.offer_arrays({"a": torch.zeros(3)}, Shape.TABLES, take)
    one.values.offer_arrays({}, Shape.TABLES, take, held=1)
    one.offer(a=torch.tensor(1.0))
    one.columns(b=torch.zeros(4))
    assert one.drops == {BACKLOG: 2}
    assert one.device is not None
    one.device.is_open = True
    one.values.settle(DEADLINE_S)
    assert (tables, len(one.reported)) == ([100], 2)
    one.values.offer_arrays({"a": torch.zeros(3)}, Shape.TABLES, take)
    one.values.drain(DEADLINE_S)
    assert tables == [100, 3]


def test_a_delivery_without_room_goes_on_where_it_stopped_and_keeps_the_order(received: Received) -> None:
    """It is taken once, called until it is done, and what was offered behind it waits."""
    calls: list[object] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        calls.append(arrays["a"].tolist())
        return lambda: calls.append("again") or len(calls) > 4  # type: ignore[func-returns-value]

    received.values.offer_arrays({"a": torch.ones(2)}, Shape.TABLES, take)
    received.values.offer({"b": 2.0}, calls.append)
    received.values.settle(DEADLINE_S)
    assert calls == [[1.0, 1.0], "again", "again", "again", "again", {"b": 2.0}]


def test_everything_is_delivered_in_the_order_offered(held: Received) -> None:
    """What is there at once waits behind what is not."""
    held.offer(a=torch.tensor(1.0))
    held.offer(b=2.0)
    held.columns(c=torch.tensor([3.0]))
    held.offer(d=torch.tensor(4.0))
    held.values.poll()
    assert held.reported == []
    held.device.is_open = True
    assert eventually(lambda: len(held.reported) == 4)
    assert [list(reported) for reported in held.reported] == [["a"], ["b"], ["c"], ["d"]]
    assert held.drops == {}


def test_a_full_backlog_drops_the_newest() -> None:
    """The count of offers is bounded; what waits is not disturbed."""
    held = Received(HandHeld(), DeviceLimits(offers=3, period_s=0.01))
    for number in range(5):
        held.offer(n=torch.tensor(float(number)))
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert held.reported == [{"n": 0.0}, {"n": 1.0}, {"n": 2.0}]
    assert held.drops == {BACKLOG: 2}


def test_the_memory_of_the_backlog_is_bounded() -> None:
    """One large offer is taken, two are too much, a small one still fits."""
    held = Received(HandHeld(), DeviceLimits(waiting_bytes=1000, period_s=0.01))
    held.columns(large=torch.zeros(200))
    held.columns(large=torch.zeros(200))
    held.columns(small=torch.zeros(10))
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert [list(reported) for reported in held.reported] == [["large"], ["small"]]
    assert held.drops == {BACKLOG: 1}


def test_the_thread_delivers_without_another_call(held: Received) -> None:
    """A trainer that falls silent has its last values sent; then the thread ends, and a new one starts."""
    for round_ in range(2):
        held.device.is_open = False
        held.offer(n=torch.tensor(float(round_)))
        mine = held.values._thread
        assert mine is not None
        assert mine.daemon
        held.device.is_open = True
        assert eventually(lambda: len(held.reported) == round_ + 1)  # noqa: B023 asked in this round
        assert eventually(lambda: not mine.is_alive())  # noqa: B023 asked in this round
    assert held.reported == [{"n": 0.0}, {"n": 1.0}]


def test_a_drain_waits_no_longer_than_its_timeout() -> None:
    """What has not come is counted; later offers are too; the thread ends."""
    held = Received(HandHeld(), DeviceLimits(period_s=1000.0))
    held.offer(a=torch.tensor(1.0))
    held.columns(b=torch.tensor([1.0]))
    thread = held.values._thread
    began = time.monotonic()
    held.values.drain(0.05)
    assert time.monotonic() - began >= 0.05
    held.offer(c=torch.tensor(1.0))
    held.device.is_open = True
    held.values.poll()
    assert held.reported == []
    assert held.drops == {PENDING: 3}
    assert thread is not None
    assert eventually(lambda: not thread.is_alive())


def test_a_drain_delivers_what_comes_in_time() -> None:
    """It ends as soon as everything is there."""
    held = Received(HandHeld(), DeviceLimits(period_s=1000.0))
    held.offer(a=torch.tensor(1.0))
    opener = threading.Timer(0.05, lambda: setattr(held.device, "is_open", True))
    opener.start()
    held.values.drain(1000.0)
    opener.join()
    assert held.reported == [{"a": 1.0}]
    assert held.drops == {}


def test_an_error_costs_one_offer(held: Received) -> None:
    """A failing device, a failing receiver: counted, and the next one has its turn."""

    def fail(_: object) -> None:
        raise OSError("full")

    held.device.error = RuntimeError("illegal memory access")
    held.offer(a=torch.tensor(1.0))
    assert eventually(lambda: held.drops[FAILED] == 1)
    held.device.error = None
    held.values.offer({"b": torch.tensor(1.0)}, fail)
    held.offer(c=torch.tensor(3.0))
    held.device.is_open = True
    assert eventually(lambda: held.reported == [{"c": 3.0}])
    assert held.drops == {FAILED: 2}


def test_an_offer_made_while_another_is_delivered_has_its_turn(received: Received) -> None:
    """As from a signal handler: it neither waits for itself nor is forgotten."""

    def again(reported: object) -> None:
        received.reported.append(reported)
        received.values.offer({"b": torch.tensor(2.0)}, received.reported.append)

    received.values.offer({"a": torch.tensor(1.0)}, again)
    received.values.settle(DEADLINE_S)
    assert received.reported == [{"a": 1.0}, {"b": 2.0}]


def test_every_offer_of_many_threads_ends_once() -> None:
    """Reported or dropped, never both, never neither; each thread's own in its order."""
    held = Received(HandHeld(), DeviceLimits(offers=8, period_s=0.001))

    def train(thread: int) -> None:
        for number in range(300):
            held.offer(thread=float(thread), n=torch.tensor(float(number)))
            held.device.is_open = number % 3 > 0

    threads = [threading.Thread(target=train, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert len(held.reported) + held.drops[BACKLOG] == 6 * 300
    assert set(held.drops) <= {BACKLOG}
    for thread in range(6):
        own = [reported["n"] for reported in held.reported if reported["thread"] == thread]
        assert own == sorted(set(own))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_delivers_nor_frees() -> None:
    """What waits stays the parent's: in the child nothing is destroyed, delivered or counted."""
    reading, writing = os.pipe()
    held = Received(HandHeld(), DeviceLimits(period_s=1000.0))

    class Pinned:
        def __init__(self, parent: int) -> None:
            self._parent = parent

        def __del__(self) -> None:
            if os.getpid() != self._parent:
                os.write(writing, b"freed")

    held.device.memory = Pinned(os.getpid())  # type: ignore[attr-defined]
    held.offer(a=torch.tensor(1.0))
    child = os.fork()
    if not child:
        held.values.abandon()
        held.device.is_open = True
        held.device = None
        held.offer(b=1.0)
        held.values.poll()
        held.values.drain(0.0)
        os.write(writing, b"reported" if held.reported or held.drops else b"quiet")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stated:
        assert stated.read() == b"quiet"
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert held.reported == [{"a": 1.0}]


def test_importing_loads_no_torch() -> None:
    """Nor NumPy; and plain numbers pass without either."""
    script = """
import sys
import overwatch.sdk.device as device
taken = []
device.DeviceValues(print, print).offer({"a": 1.0, "b": 2}, taken.append)
assert taken == [{"a": 1.0, "b": 2}], taken
print(sorted({"torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

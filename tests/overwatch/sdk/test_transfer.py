"""The way from CUDA: never a wait, never a broken capture. Without a GPU, torch.cuda is stood in for."""

import contextlib
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from overwatch.sdk import transfer
from overwatch.sdk.device import PENDING, DeviceLimits, DeviceValues
from overwatch.sdk.packing import Shape
from overwatch.sdk.transfer import KEPT_SLOTS, Pinned
from overwatch.sdk.values import RefusedError

torch = pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
DEADLINE_S = 20.0


class Cuda(types.ModuleType):
    """Stands in for torch with one stream whose work is done when the test states it."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = self
        self.version = types.SimpleNamespace(cuda=None)
        self.capturing: set[int] = set()
        self.entered: list[int] = []
        self.events: list[Event] = []
        self.buffers: list[torch.Tensor] = []

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def empty(self, size: int, *, dtype: object, device: str, pin_memory: bool) -> object:
        """Host memory; pinned only where there is a GPU."""
        assert pin_memory
        assert device == "cpu"
        self.buffers.append(buffer := torch.empty(size, dtype=dtype))
        return buffer

    @contextlib.contextmanager
    def device(self, index: int) -> Iterator[None]:
        """The device that calls are for."""
        self.entered.append(index)
        yield

    def current_stream(self, index: int) -> str:
        """The stream of a device."""
        return f"stream {index}"

    def is_current_stream_capturing(self) -> bool:
        """Whether this thread captures."""
        return threading.get_ident() in self.capturing

    def Event(self) -> "Event":  # noqa: N802 torch's name
        """A new event."""
        self.events.append(event := Event())
        return event


class Event:
    """Shows whether the work before it is done; knows what it was recorded on."""

    def __init__(self) -> None:
        self.is_done = False
        self.requested = 0
        self.streams: list[str] = []

    def record(self, stream: str) -> None:
        """Mark the stream's present end."""
        self.is_done = False
        self.streams.append(stream)

    def query(self) -> bool:
        """Whether it has happened."""
        self.requested += 1
        return self.is_done


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    """The stand-in, where the code under test finds torch."""
    one = Cuda()
    monkeypatch.setitem(sys.modules, "torch", one)
    forget = transfer._exchange.cache_clear
    forget()
    yield one
    forget()


def in_thread(call: Callable[[], object]) -> object:
    """The call's result from another thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(DEADLINE_S)
    return found[0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_values_pass_through_a_slot_exactly(cuda: Cuda, dtype: str, rows: int) -> None:
    """Whatever their width and number; the result is nobody else's memory."""
    way = Pinned()
    sent = torch.arange(rows).to(getattr(torch, dtype))
    pending = way.send(sent)
    assert not pending.landed()
    cuda.events[0].is_done = True
    assert pending.landed()
    values = pending.take()
    assert values.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(values, sent.numpy())
    again = way.send(torch.zeros(rows, dtype=getattr(torch, dtype)))
    np.testing.assert_array_equal(values, sent.numpy())
    assert again.nbytes >= values.nbytes


def test_slots_are_used_again_once_taken(cuda: Cuda) -> None:
    """Never while values are on their way; a burst leaves only so many behind."""
    way = Pinned()
    for _ in range(100):
        pending = way.send(torch.ones(12))
        cuda.events[-1].is_done = True
        pending.take()
    assert len(cuda.buffers) == 1
    assert cuda.events[0].streams == ["stream -1"] * 100
    burst = [way.send(torch.full((12,), float(number))) for number in range(KEPT_SLOTS + 5)]
    assert [pending.take()[0] for pending in burst] == [float(number) for number in range(KEPT_SLOTS + 5)]
    assert len(cuda.buffers) == KEPT_SLOTS + 5
    for pending in [way.send(torch.ones(12)) for _ in range(KEPT_SLOTS + 5)]:
        pending.take()
    assert len(cuda.buffers) == KEPT_SLOTS + 10


def test_a_slot_made_in_inference_mode_serves_outside_of_it(cuda: Cuda) -> None:
    """The first report may come from an evaluation."""
    way = Pinned()
    with torch.inference_mode():
        way.send(torch.ones(3)).take()
    assert not cuda.buffers[0].is_inference()
    assert way.send(torch.full((3,), 2.0)).take().tolist() == [2.0] * 3
    assert len(cuda.buffers) == 1


def test_nothing_is_sent_or_asked_in_a_capture(cuda: Cuda) -> None:
    """A capturing thread is refused with a reason, and its events are left alone until it is done."""
    way = Pinned()
    pending = way.send(torch.ones(3))
    cuda.events[0].is_done = True
    cuda.capturing.add(threading.get_ident())
    with pytest.raises(RefusedError, match="captured"):
        way.check(3)
    assert not pending.landed()
    assert cuda.events[0].requested == 0
    cuda.capturing.clear()
    way.check(3)
    assert pending.landed()
    assert cuda.entered.count(3) == 2


def test_another_thread_asks_only_outside_of_captures(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves capture mode around its question; where it cannot, only the sender asks."""
    way = Pinned()
    pending, other, third = (way.send(torch.ones(3)) for _ in range(3))
    for event in cuda.events:
        event.is_done = True
    assert in_thread(pending.landed) is False
    assert cuda.events[0].requested == 0
    assert pending.landed()
    assert in_thread(pending.landed) is True
    assert cuda.events[0].requested == 1
    modes: list[tuple[int, int]] = []

    def exchange(mode: object) -> int:
        modes.append((mode._obj.value, cuda.events[1].requested))  # type: ignore[attr-defined]
        mode._obj.value = 0  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr(transfer, "_exchange", lambda: exchange)
    assert in_thread(other.landed) is True
    assert modes == [(1, 0), (0, 1)]
    monkeypatch.setattr(transfer, "_exchange", lambda: lambda _: 1)
    assert in_thread(third.landed) is False


class Reported:
    """Device values of a GPU and what they report."""

    def __init__(self) -> None:
        self.reported: list[dict[str, float]] = []
        self.drops: list[str] = []
        self.refused: dict[str, str] = {}
        self.values = DeviceValues(
            self.drops.append,
            lambda name, error: self.refused.update({name: str(error)}),
            DeviceLimits(period_s=0.01),
        )


@pytest.fixture
def strict() -> Iterator[None]:
    """Torch raises when an operation waits for the device."""
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode(before)


@needs_gpu
def test_values_of_a_gpu_arrive_exactly_without_a_wait(strict: None) -> None:
    """Numbers and columns of every kind, while torch forbids to wait; reported by the drain thread."""
    one = Reported()
    dtypes = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
    numbers = {str(dtype): torch.ones((), device="cuda", dtype=dtype) for dtype in dtypes}
    one.values.offer({**numbers, "plain": 2.0}, one.reported.append)
    columns = {str(dtype): torch.arange(5, device="cuda").to(dtype) for dtype in dtypes}
    one.values.offer_arrays(columns, Shape.COLUMNS, one.reported.append)
    deadline = time.monotonic() + DEADLINE_S
    while len(one.reported) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one.reported[0] == dict.fromkeys(numbers, 1.0) | {"plain": 2.0}
    assert one.reported[1][str(torch.bfloat16)].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert one.refused == {}
    assert one.drops == []
    one.values.drain(0.0)


@needs_gpu
def test_an_offer_does_not_wait_for_the_work_before_it(strict: None) -> None:
    """It returns while the device still computes; a later change of the tensor is not seen."""
    one = Reported()
    one.values.offer({"warm": torch.ones((), device="cuda")}, lambda _: None)
    value = torch.ones((), device="cuda")
    torch.cuda._sleep(2_000_000_000)
    done = torch.cuda.Event()
    one.values.offer({"a": value}, one.reported.append)
    value.fill_(9.0)
    done.record()
    assert not done.query()
    assert one.reported == []
    one.values.drain(DEADLINE_S)
    assert one.reported == [{"a": 1.0}]


@needs_gpu
def test_a_drain_gives_up_on_a_busy_gpu() -> None:
    """What is not there in time is counted."""
    one = Reported()
    torch.cuda._sleep(10_000_000_000)
    one.values.offer({"a": torch.ones((), device="cuda")}, one.reported.append)
    one.values.drain(0.01)
    assert one.drops == [PENDING]
    torch.cuda.synchronize()


@needs_gpu
def test_a_capture_survives_values_on_their_way() -> None:
    """The drain thread asks while a graph is captured; an offer inside is refused by name."""
    one = Reported()
    value = torch.ones((), device="cuda")
    torch.cuda._sleep(500_000_000)
    one.values.offer({"before": value}, one.reported.append)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):  # torch.cuda.graph() would wait for the device first
        graph.capture_begin()
        out = value * 2.0
        one.values.offer({"inside": out}, one.reported.append)
        time.sleep(0.1)
        graph.capture_end()
    torch.cuda.synchronize()
    graph.replay()
    one.values.offer({"after": out}, one.reported.append)
    one.values.drain(DEADLINE_S)
    assert one.reported == [{"before": 1.0}, {}, {"after": 2.0}]
    assert list(one.refused) == ["inside"]

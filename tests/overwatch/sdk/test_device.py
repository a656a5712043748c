"""Device values: exact, in order, never read by the training thread; each offer ends once."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import numpy as np
import pytest

from overwatch.sdk.device import BACKLOG, FAILED, PENDING, DeviceLimits, DeviceValues
from overwatch.sdk.packing import Tensor, is_tensor
from overwatch.sdk.transfer import Flight, Host
from overwatch.sdk.values import RefusedError

torch = pytest.importorskip("torch")
from tests.overwatch.sdk.dispatch import Recorder  # noqa: E402 needs torch

DEADLINE_S = 20.0
FAST = DeviceLimits(period_s=0.01, linger_s=0.05)


class HandHeld:
    """A device whose copies land when the test says so."""

    def __init__(self) -> None:
        self.is_open = False
        self.error: RuntimeError | None = None

    def check(self, index: int) -> None:
        """Never refuses."""

    def send(self, packed: Tensor) -> Flight:
        """Copied, but not there yet."""
        return _Held(self, Host().send(packed).take())


class _Held:
    def __init__(self, device: HandHeld, values: np.ndarray) -> None:
        self._device = device
        self._values = values
        self.nbytes = values.nbytes

    def landed(self) -> bool:
        if self._device.error is not None:
            raise self._device.error
        return self._device.is_open

    def take(self) -> np.ndarray:
        return self._values


class Heard:
    """Device values and everything they tell."""

    def __init__(self, device: HandHeld | None = None, limits: DeviceLimits | None = None) -> None:
        self.told: list[object] = []
        self.drops: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self.device = device
        self.values = DeviceValues(
            self._drop, self._refuse, limits, None if device is None else {"cpu": device}
        )

    def _drop(self, reason: str) -> None:
        self.drops[reason] += 1

    def _refuse(self, name: str, error: RefusedError) -> None:
        self.refused[name] = str(error)

    def offer(self, **values: Tensor | float) -> None:
        """Offer numbers, and wait for those that no device holds back."""
        self.values.offer(values, self.told.append)
        self._settle()

    def columns(self, **values: Tensor) -> None:
        """Offer columns, and wait as above."""
        self.values.offer_columns(values, self.told.append)
        self._settle()

    def _settle(self) -> None:
        if self.device is None:
            self.values.settle(DEADLINE_S)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Values from the CPU."""
    yield (one := Heard())
    one.values.drain(0.0)


@pytest.fixture
def held() -> Iterator[Heard]:
    """Values from a device that lands nothing until it is opened."""
    yield (one := Heard(HandHeld(), FAST))
    one.values.drain(0.0)


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    return is_so()


def drain_threads() -> list[threading.Thread]:
    """Threads that look after device values."""
    return [thread for thread in threading.enumerate() if thread.name == "overwatch-device"]


FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
WHOLES = ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", FLOATS)
def test_floats_of_every_width_arrive_exactly(heard: Heard, name: str) -> None:
    """Smallest, largest, subnormal, not finite: as `.item()` would have them, side by side with others."""
    dtype = getattr(torch, name)
    info = torch.finfo(dtype)
    numbers = [info.max, -info.max, info.tiny, info.eps, 1 / 3, 0.0, float("nan")]
    tensors = {
        f"n{i}": torch.tensor(number, dtype=torch.float64).to(dtype) for i, number in enumerate(numbers)
    }
    heard.offer(**tensors, other=torch.tensor(0.1), plain=0.1)
    expected = {key: tensor.item() for key, tensor in tensors.items()}
    expected |= {"other": torch.tensor(0.1).item(), "plain": 0.1}
    assert len(heard.told) == 1
    np.testing.assert_equal(heard.told[0], expected)
    column = torch.stack(list(tensors.values()))
    heard.columns(column=column, other=torch.arange(3))
    np.testing.assert_equal(heard.told[1]["column"].astype("f8"), column.double().numpy())
    np.testing.assert_equal(heard.told[1]["other"], np.arange(3))


@pytest.mark.parametrize("name", [*WHOLES, "bool"])
def test_whole_numbers_of_every_width_arrive_exactly(heard: Heard, name: str) -> None:
    """The ends of the range; numbers as Python's float has them, columns with their own dtype."""
    dtype = getattr(torch, name)
    ends = [0, 1] if name == "bool" else [torch.iinfo(dtype).min, torch.iinfo(dtype).max, 1]
    column = torch.from_numpy(np.array(ends, dtype=name))
    assert column.dtype is dtype
    heard.offer(low=column[0], high=column[1], other=torch.tensor(0.5))
    assert heard.told.pop() == {"low": float(ends[0]), "high": float(ends[1]), "other": 0.5}
    heard.columns(column=column)
    found = heard.told.pop()["column"]
    assert found.dtype == np.dtype(name)
    assert found.tolist() == ends


def test_all_that_were_taken_are_told_in_their_order(heard: Heard) -> None:
    """Floats and tensors of every kind come back under their names, as they were given."""
    heard.offer(
        a=torch.tensor(1.0, requires_grad=True),
        b=2.0,
        c=torch.tensor([3], dtype=torch.int8),
        d=torch.nn.Parameter(torch.tensor([[4.0]])),
        e=torch.tensor(True),
    )
    assert list(heard.told[0].items()) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 1.0)]
    assert all(type(value) is float for value in heard.told[0].values())


def test_columns_of_odd_layouts_arrive_whole(heard: Heard) -> None:
    """Strided, expanded, empty, without dimensions, part of a graph."""
    table = torch.arange(12.0).reshape(3, 4)
    weight = torch.ones(4, requires_grad=True)
    heard.columns(
        strided=table[:, 1], expanded=torch.ones(1).expand(5), empty=torch.empty(0), one=torch.tensor(7),
        graph=table[0] * weight, negated=torch._neg_view(table[0]),
    )  # fmt: skip
    assert heard.refused == {}
    assert {name: array.tolist() for name, array in heard.told[0].items()} == {
        "strided": [1.0, 5.0, 9.0],
        "expanded": [1.0] * 5,
        "empty": [],
        "one": [7],
        "graph": [0.0, 1.0, 2.0, 3.0],
        "negated": [0.0, -1.0, -2.0, -3.0],
    }


COPIES = {
    *("aten::stack", "aten::cat", "aten::_to_copy", "aten::to", "aten::detach", "aten::view", "aten::alias"),
    *("aten::reshape", "aten::resolve_conj", "aten::resolve_neg"),
}
"""Operations that look at no value: they make a new tensor or another view of one."""


def test_the_recorder_sees_a_host_read() -> None:
    """The check below can fail: reading a tensor is a recorded operation."""
    with Recorder() as recorder:
        torch.ones(()).item()
        bool(torch.ones(1))
    assert recorder.seen["aten::_local_scalar_dense"] == 2
    assert not set(recorder.seen) <= COPIES


@pytest.mark.parametrize(
    "context",
    [
        nullcontext,
        torch.no_grad,
        torch.inference_mode,
        torch.enable_grad,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        torch.autograd.graph.save_on_cpu,
    ],
)
def test_the_training_thread_reads_no_value(
    held: Heard, heard: Heard, context: Callable[[], AbstractContextManager[object]]
) -> None:
    """No host read while values of any kind are offered and polled, in any mode, with a graph alive."""
    weight = torch.ones((), requires_grad=True)
    with context():
        loss = (weight * 2.0) ** 2
        numbers = {
            "loss": loss, "leaf": weight, "one": loss.reshape(1), "bool": torch.tensor(True),
            "int": torch.tensor(3), "half": torch.tensor(0.5, dtype=torch.bfloat16), "float": 0.5,
        }  # fmt: skip
        columns = {
            "a": torch.arange(5), "b": loss.expand(4), "c": torch.rand(3) > 0.5,
            "d": torch.ones(2, dtype=torch.float16), "e": torch.ones(2, dtype=torch.bfloat16),
        }  # fmt: skip
        with Recorder() as recorder:
            for one in (held, heard):
                one.offer(**numbers)
                one.columns(**columns)
                one.values.poll()
    assert set(recorder.seen) <= COPIES
    assert recorder.seen["aten::stack"] >= 2
    assert held.refused == heard.refused == {}
    assert heard.told[0]["loss"] == 4.0
    if loss.requires_grad:
        loss.backward()
        assert weight.grad == 8.0


def test_no_function_of_the_trainer_runs(heard: Heard) -> None:
    """A subclass's and a mode's own functions are passed by; looking at a value's type calls nothing."""

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: object, **__: object) -> object:
            raise AssertionError("user code ran")

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, *_: object, **__: object) -> object:
            raise AssertionError("user code ran")

    class Sly:
        @property
        def __class__(self) -> type:
            raise AssertionError("user code ran")

    one, two, three = torch.tensor(1.0).as_subclass(Own), torch.tensor(2.0), torch.tensor([3.0])
    with Mode():
        heard.offer(a=one, b=two)
        heard.columns(c=three)
        assert not is_tensor(Sly())
    assert heard.refused == {}
    assert heard.told == [{"a": 1.0, "b": 2.0}, {"c": [3.0]}]


def test_a_later_change_is_not_seen(held: Heard) -> None:
    """What is told is what was offered, also when the trainer writes on before it is told."""
    number, column = torch.tensor(1.0), torch.tensor([1.0, 2.0])
    numbers: dict[str, Tensor | float] = {"a": number, "b": 1.0}
    held.values.offer(numbers, held.told.append)
    held.columns(c=column)
    number.fill_(9.0)
    column.fill_(9.0)
    numbers["b"] = 9.0
    held.device.is_open = True
    held.values.poll()
    assert eventually(lambda: len(held.told) == 2)
    assert held.told[0] == {"a": 1.0, "b": 1.0}
    assert held.told[1]["c"].tolist() == [1.0, 2.0]


def _wrapped() -> object:
    """A tensor whose values are behind code of its own, like a DTensor."""

    class Wrapped(torch.Tensor):
        def __new__(cls) -> Self:
            return torch.Tensor._make_wrapper_subclass(cls, ())

        @classmethod
        def __torch_dispatch__(cls, *_: object, **__: object) -> object:
            raise AssertionError("user code ran")

    return Wrapped()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.zeros((), device="meta"), "no value"),
        (lambda: torch.zeros(3), "not one number"),
        (lambda: torch.zeros(0), "not one number"),
        (lambda: torch.tensor(1j), "complex"),
        (lambda: torch.ones(1).to_sparse(), "sparse"),
        (_wrapped, "to_local"),
        (torch.nn.parameter.UninitializedParameter, "cannot be copied"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(heard: Heard, make: Callable[[], Tensor], said: str) -> None:
    """The rest of the offer goes on; so does an offer of which nothing is left."""
    heard.offer(bad=make(), good=torch.tensor(1.0), plain=2.0)
    assert heard.told == [{"good": 1.0, "plain": 2.0}]
    assert said in heard.refused["bad"]
    heard.offer(bad=make())
    assert heard.told[1] == {}
    assert heard.drops == {}


@pytest.mark.parametrize("make", [lambda: torch.zeros(2, 2), lambda: torch.zeros(3, device="meta")])
def test_what_is_no_column_is_refused_by_name(heard: Heard, make: Callable[[], Tensor]) -> None:
    """The other columns go on."""
    heard.columns(bad=make(), good=torch.ones(2))
    assert list(heard.refused) == ["bad"]
    assert heard.told[0]["good"].tolist() == [1.0, 1.0]


def test_a_tensor_inside_a_transform_is_refused(heard: Heard) -> None:
    """Inside vmap or grad a tensor has no one value; the transform's own result is untouched."""

    def loss(x: object) -> object:
        heard.offer(x=x)
        return x * 2.0

    assert torch.vmap(loss)(torch.ones(3)).tolist() == [2.0] * 3
    assert torch.func.grad(loss)(torch.tensor(1.0)) == 2.0
    assert "x" in heard.refused
    assert all(told == {} for told in heard.told)


def test_a_device_without_a_way_is_refused(heard: Heard) -> None:
    """A kind of device whose copies might wait says what to do."""
    values = DeviceValues(heard._drop, heard._refuse, transfers={})
    values.offer({"a": torch.tensor(1.0)}, heard.told.append)
    assert ".cpu()" in heard.refused["a"]
    assert heard.told == [{}]


def test_no_value_of_a_tensor_is_delivered_in_the_thread_of_its_offer() -> None:
    """Those of the CPU are copied there and delivered by the drain thread, whatever is called meanwhile."""
    one, threads = Heard(limits=FAST), list[str]()

    def note(_: object) -> None:
        threads.append(threading.current_thread().name)

    for number in range(50):
        one.values.offer({"a": torch.tensor(float(number))}, note)
        one.values.offer_columns({"a": torch.ones(3)}, note)
        one.values.look()
    assert eventually(lambda: len(threads) == 100)
    assert set(threads) == {"overwatch-device"}
    one.values.drain(0.0)


def test_what_has_no_tensor_is_delivered_at_once_and_needs_no_thread(heard: Heard) -> None:
    """Plain numbers are delivered before the offer returns, where nothing waits."""
    before = drain_threads()
    heard.values.offer({"a": 1.0}, heard.told.append)
    assert heard.told == [{"a": 1.0}]
    assert drain_threads() == before


def test_a_thread_that_cannot_be_started_leaves_delivering_to_calls(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the interpreter ends: the offer itself delivers, and each look does."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        heard.values.offer({"a": torch.tensor(1.0)}, heard.told.append)
    assert heard.told == [{"a": 1.0}]


def test_tables_keep_their_values_in_order_whatever_their_shape(heard: Heard) -> None:
    """Tables of any dimensions and layouts come flat, row by row, with their own types."""
    table = torch.arange(24, dtype=torch.int16).reshape(2, 3, 4)
    came: list[dict[str, np.ndarray]] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        came.append(arrays)
        return lambda: True

    heard.values.offer_tables({"a": table.transpose(0, 2), "b": table[0] > 3, "c": table[1]}, take)
    heard.values.settle(DEADLINE_S)
    ((arrays),) = came
    assert arrays["a"].tolist() == table.transpose(0, 2).flatten().tolist()
    assert (arrays["a"].dtype, arrays["b"].dtype) == (np.dtype("i2"), np.dtype(bool))
    assert arrays["c"].tolist() == list(range(12, 24))


def test_a_large_table_leaves_the_room_of_numbers_and_other_tables_wait_for_its_own() -> None:
    """It may be larger than all that may wait; a second one is dropped, numbers behind it are not."""
    one = Heard(HandHeld(), DeviceLimits(waiting_bytes=64, period_s=600.0))
    tables: list[object] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        tables.append(len(arrays["a"]))
        return lambda: True

    one.values.offer_tables({"a": torch.zeros(10, 10)}, take)
    one.values.offer_tables({"a": torch.zeros(3)}, take)
    one.values.offer_tables({}, take, held=1)
    one.offer(a=torch.tensor(1.0))
    one.columns(b=torch.zeros(4))
    assert one.drops == {BACKLOG: 2}
    assert one.device is not None
    one.device.is_open = True
    one.values.settle(DEADLINE_S)
    assert (tables, len(one.told)) == ([100], 2)
    one.values.offer_tables({"a": torch.zeros(3)}, take)
    one.values.drain(DEADLINE_S)
    assert tables == [100, 3]


@pytest.mark.parametrize("kinds", [1, 2])
def test_numbers_of_a_type_are_one_copy(heard: Heard, kinds: int) -> None:
    """However many an update has: one operation packs them, and none reads them."""
    types = (torch.float32, torch.float64)[:kinds]
    numbers = {f"n{i}": torch.ones((), dtype=types[i % kinds]) * i for i in range(20)}
    with Recorder() as recorder:
        heard.values.offer(numbers, heard.told.append)
    assert recorder.seen["aten::stack"] == kinds
    assert set(recorder.seen) <= COPIES
    heard.values.settle(DEADLINE_S)
    assert heard.told == [{name: float(i) for i, name in enumerate(numbers)}]


def test_a_delivery_without_room_goes_on_where_it_stopped_and_keeps_the_order(heard: Heard) -> None:
    """It is taken once, called until it is done, and what was offered behind it waits."""
    calls: list[object] = []

    def take(arrays: dict[str, np.ndarray]) -> Callable[[], bool]:
        calls.append(arrays["a"].tolist())
        return lambda: calls.append("again") or len(calls) > 4  # type: ignore[func-returns-value]

    heard.values.offer_tables({"a": torch.ones(2)}, take)
    heard.values.offer({"b": 2.0}, calls.append)
    heard.values.settle(DEADLINE_S)
    assert calls == [[1.0, 1.0], "again", "again", "again", "again", {"b": 2.0}]


def test_everything_is_told_in_the_order_offered(held: Heard) -> None:
    """What is there at once waits behind what is not."""
    held.offer(a=torch.tensor(1.0))
    held.offer(b=2.0)
    held.columns(c=torch.tensor([3.0]))
    held.offer(d=torch.tensor(4.0))
    held.values.poll()
    assert held.told == []
    held.device.is_open = True
    assert eventually(lambda: len(held.told) == 4)
    assert [list(told) for told in held.told] == [["a"], ["b"], ["c"], ["d"]]
    assert held.drops == {}


def test_a_full_backlog_drops_the_newest() -> None:
    """The count of offers is bounded; what waits is not disturbed."""
    held = Heard(HandHeld(), DeviceLimits(offers=3, period_s=0.01))
    for number in range(5):
        held.offer(n=torch.tensor(float(number)))
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert held.told == [{"n": 0.0}, {"n": 1.0}, {"n": 2.0}]
    assert held.drops == {BACKLOG: 2}


def test_the_memory_of_the_backlog_is_bounded() -> None:
    """One large offer is taken, two are too much, a small one still fits."""
    held = Heard(HandHeld(), DeviceLimits(waiting_bytes=1000, period_s=0.01))
    held.columns(large=torch.zeros(200))
    held.columns(large=torch.zeros(200))
    held.columns(small=torch.zeros(10))
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert [list(told) for told in held.told] == [["large"], ["small"]]
    assert held.drops == {BACKLOG: 1}


def test_the_thread_delivers_without_another_call(held: Heard) -> None:
    """A trainer that falls silent has its last values told; then the thread ends, and a new one starts."""
    for round_ in range(2):
        held.device.is_open = False
        held.offer(n=torch.tensor(float(round_)))
        mine = held.values._thread
        assert mine is not None
        assert mine.daemon
        held.device.is_open = True
        assert eventually(lambda: len(held.told) == round_ + 1)  # noqa: B023 asked in this round
        assert eventually(lambda: not mine.is_alive())  # noqa: B023 asked in this round
    assert held.told == [{"n": 0.0}, {"n": 1.0}]


def test_a_drain_waits_no_longer_than_told() -> None:
    """What has not come is counted; later offers are too; the thread ends."""
    held = Heard(HandHeld(), DeviceLimits(period_s=1000.0))
    held.offer(a=torch.tensor(1.0))
    held.columns(b=torch.tensor([1.0]))
    thread = held.values._thread
    began = time.monotonic()
    held.values.drain(0.05)
    assert time.monotonic() - began >= 0.05
    held.offer(c=torch.tensor(1.0))
    held.device.is_open = True
    held.values.poll()
    assert held.told == []
    assert held.drops == {PENDING: 3}
    assert thread is not None
    assert eventually(lambda: not thread.is_alive())


def test_a_drain_tells_what_comes_in_time() -> None:
    """It ends as soon as everything is there."""
    held = Heard(HandHeld(), DeviceLimits(period_s=1000.0))
    held.offer(a=torch.tensor(1.0))
    opener = threading.Timer(0.05, lambda: setattr(held.device, "is_open", True))
    opener.start()
    held.values.drain(1000.0)
    opener.join()
    assert held.told == [{"a": 1.0}]
    assert held.drops == {}


def test_an_error_costs_one_offer(held: Heard) -> None:
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
    assert eventually(lambda: held.told == [{"c": 3.0}])
    assert held.drops == {FAILED: 2}


def test_an_offer_made_while_another_is_told_has_its_turn(heard: Heard) -> None:
    """As from a signal handler: it neither waits for itself nor is forgotten."""

    def again(told: object) -> None:
        heard.told.append(told)
        heard.values.offer({"b": torch.tensor(2.0)}, heard.told.append)

    heard.values.offer({"a": torch.tensor(1.0)}, again)
    heard.values.settle(DEADLINE_S)
    assert heard.told == [{"a": 1.0}, {"b": 2.0}]


def test_every_offer_of_many_threads_ends_once() -> None:
    """Told or dropped, never both, never neither; each thread's own in its order."""
    held = Heard(HandHeld(), DeviceLimits(offers=8, period_s=0.001))

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
    assert len(held.told) + held.drops[BACKLOG] == 6 * 300
    assert set(held.drops) <= {BACKLOG}
    for thread in range(6):
        own = [told["n"] for told in held.told if told["thread"] == thread]
        assert own == sorted(set(own))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_tells_nor_frees() -> None:
    """What waits stays the parent's: in the child nothing is destroyed, told or counted."""
    reading, writing = os.pipe()
    held = Heard(HandHeld(), DeviceLimits(period_s=1000.0))

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
        os.write(writing, b"told" if held.told or held.drops else b"quiet")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        assert said.read() == b"quiet"
    held.device.is_open = True
    held.values.drain(DEADLINE_S)
    assert held.told == [{"a": 1.0}]


def test_importing_loads_no_torch() -> None:
    """Nor NumPy; and plain numbers pass without either."""
    script = """
import sys
import overwatch.sdk.device as device
told = []
device.DeviceValues(print, print).offer({"a": 1.0, "b": 2}, told.append)
assert told == [{"a": 1.0, "b": 2}], told
print(sorted({"torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "wrong", [{"offers": 0}, {"waiting_bytes": -1}, {"period_s": 0.0}, {"linger_s": -1.0}]
)
def test_impossible_limits_are_refused(wrong: dict[str, float]) -> None:
    """Where they are made."""
    with pytest.raises(ValueError, match="wait"):
        DeviceLimits(**wrong)  # type: ignore[arg-type]

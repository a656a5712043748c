"""Device values: exact, in order, never read by the training thread."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import numpy as np
import pytest

from overwatch.sdk.device import DeviceValues
from overwatch.sdk.packing import Tensor, is_tensor
from tests.overwatch.sdk.delivering import DEADLINE_S, Received, eventually

torch = pytest.importorskip("torch")
from tests.overwatch.sdk.dispatch import Recorder  # noqa: E402 needs torch

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
WHOLES = ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", FLOATS)
def test_floats_of_every_width_arrive_exactly(received: Received, name: str) -> None:
    """Smallest, largest, subnormal, not finite: as `.item()` would have them, side by side with others."""
    dtype = getattr(torch, name)
    info = torch.finfo(dtype)
    numbers = [info.max, -info.max, info.tiny, info.eps, 1 / 3, 0.0, float("nan")]
    tensors = {
        f"n{i}": torch.tensor(number, dtype=torch.float64).to(dtype) for i, number in enumerate(numbers)
    }
    received.offer(**tensors, other=torch.tensor(0.1), plain=0.1)
    expected = {key: tensor.item() for key, tensor in tensors.items()}
    expected |= {"other": torch.tensor(0.1).item(), "plain": 0.1}
    assert len(received.reported) == 1
    np.testing.assert_equal(received.reported[0], expected)
    column = torch.stack(list(tensors.values()))
    received.columns(column=column, other=torch.arange(3))
    np.testing.assert_equal(received.reported[1]["column"].astype("f8"), column.double().numpy())
    np.testing.assert_equal(received.reported[1]["other"], np.arange(3))


@pytest.mark.parametrize("name", [*WHOLES, "bool"])
def test_whole_numbers_of_every_width_arrive_exactly(received: Received, name: str) -> None:
    """The ends of the range; numbers as Python's float has them, columns with their own dtype."""
    dtype = getattr(torch, name)
    ends = [0, 1] if name == "bool" else [torch.iinfo(dtype).min, torch.iinfo(dtype).max, 1]
    column = torch.from_numpy(np.array(ends, dtype=name))
    assert column.dtype is dtype
    received.offer(low=column[0], high=column[1], other=torch.tensor(0.5))
    assert received.reported.pop() == {"low": float(ends[0]), "high": float(ends[1]), "other": 0.5}
    received.columns(column=column)
    found = received.reported.pop()["column"]
    assert found.dtype == np.dtype(name)
    assert found.tolist() == ends


def test_all_that_were_taken_are_reported_in_their_order(received: Received) -> None:
    """Floats and tensors of every kind come back under their names, as they were given."""
    received.offer(
        a=torch.tensor(1.0, requires_grad=True),
        b=2.0,
        c=torch.tensor([3], dtype=torch.int8),
        d=torch.nn.Parameter(torch.tensor([[4.0]])),
        e=torch.tensor(True),
    )
    assert list(received.reported[0].items()) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 1.0)]
    assert all(type(value) is float for value in received.reported[0].values())


def test_columns_of_odd_layouts_arrive_whole(received: Received) -> None:
    """Strided, expanded, empty, without dimensions, part of a graph."""
    table = torch.arange(12.0).reshape(3, 4)
    weight = torch.ones(4, requires_grad=True)
    received.columns(
        strided=table[:, 1], expanded=torch.ones(1).expand(5), empty=torch.empty(0), one=torch.tensor(7),
        graph=table[0] * weight, negated=torch._neg_view(table[0]),
    )  # fmt: skip
    assert received.refused == {}
    assert {name: array.tolist() for name, array in received.reported[0].items()} == {
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
    held: Received, received: Received, context: Callable[[], AbstractContextManager[object]]
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
            for one in (held, received):
                one.offer(**numbers)
                one.columns(**columns)
                one.values.poll()
    assert set(recorder.seen) <= COPIES
    assert recorder.seen["aten::stack"] >= 2
    assert held.refused == received.refused == {}
    assert received.reported[0]["loss"] == 4.0
    if loss.requires_grad:
        loss.backward()
        assert weight.grad == 8.0


@pytest.mark.parametrize("kinds", [1, 2])
def test_numbers_of_a_type_are_one_copy(received: Received, kinds: int) -> None:
    """However many an update has: one operation packs them, and none reads them."""
    types = (torch.float32, torch.float64)[:kinds]
    numbers = {f"n{i}": torch.ones((), dtype=types[i % kinds]) * i for i in range(20)}
    with Recorder() as recorder:
        received.values.offer(numbers, received.reported.append)
    assert recorder.seen["aten::stack"] == kinds
    assert set(recorder.seen) <= COPIES
    received.values.settle(DEADLINE_S)
    assert received.reported == [{name: float(i) for i, name in enumerate(numbers)}]


def test_no_function_of_the_trainer_runs(received: Received) -> None:
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
        received.offer(a=one, b=two)
        received.columns(c=three)
        assert not is_tensor(Sly())
    assert received.refused == {}
    assert received.reported == [{"a": 1.0, "b": 2.0}, {"c": [3.0]}]


def test_a_later_change_is_not_seen(held: Received) -> None:
    """What is reported is what was offered, also when the trainer writes on before that."""
    number, column = torch.tensor(1.0), torch.tensor([1.0, 2.0])
    numbers: dict[str, Tensor | float] = {"a": number, "b": 1.0}
    held.values.offer(numbers, held.reported.append)
    held.columns(c=column)
    number.fill_(9.0)
    column.fill_(9.0)
    numbers["b"] = 9.0
    held.device.is_open = True
    held.values.poll()
    assert eventually(lambda: len(held.reported) == 2)
    assert held.reported[0] == {"a": 1.0, "b": 1.0}
    assert held.reported[1]["c"].tolist() == [1.0, 2.0]


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
    ("make", "stated"),
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
def test_what_cannot_be_taken_is_refused_by_name(
    received: Received, make: Callable[[], Tensor], stated: str
) -> None:
    """The rest of the offer goes on; so does an offer of which nothing is left."""
    received.offer(bad=make(), good=torch.tensor(1.0), plain=2.0)
    assert received.reported == [{"good": 1.0, "plain": 2.0}]
    assert stated in received.refused["bad"]
    received.offer(bad=make())
    assert received.reported[1] == {}
    assert received.drops == {}


@pytest.mark.parametrize("make", [lambda: torch.zeros(2, 2), lambda: torch.zeros(3, device="meta")])
def test_what_is_no_column_is_refused_by_name(received: Received, make: Callable[[], Tensor]) -> None:
    """The other columns go on."""
    received.columns(bad=make(), good=torch.ones(2))
    assert list(received.refused) == ["bad"]
    assert received.reported[0]["good"].tolist() == [1.0, 1.0]


def test_a_tensor_inside_a_transform_is_refused(received: Received) -> None:
    """Inside vmap or grad a tensor has no one value; the transform's own result is untouched."""

    def loss(x: object) -> object:
        received.offer(x=x)
        return x * 2.0

    assert torch.vmap(loss)(torch.ones(3)).tolist() == [2.0] * 3
    assert torch.func.grad(loss)(torch.tensor(1.0)) == 2.0
    assert "x" in received.refused
    assert all(reported == {} for reported in received.reported)


def test_a_device_without_a_way_is_refused(received: Received) -> None:
    """A kind of device whose copies might wait states what to do."""
    values = DeviceValues(received._drop, received._refuse, transfers={})
    values.offer({"a": torch.tensor(1.0)}, received.reported.append)
    assert ".cpu()" in received.refused["a"]
    assert received.reported == [{}]

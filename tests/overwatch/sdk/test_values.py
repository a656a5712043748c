"""Values of trainers: what is taken, what is refused, and that nothing waits for a device."""

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.events import Severity
from overwatch.sdk.values import RefusedError, fields, ids, number, numbers, severity_of, text, whole, words


class OnDevice:
    """A tensor on a GPU: reading it would wait."""

    device = type("Device", (), {"type": "cuda"})()
    shape = (3,)

    def __float__(self) -> float:
        raise AssertionError("the device was waited for")


def test_numbers_of_every_kind_are_taken() -> None:
    """Python's, NumPy's, tensors without dimensions on the CPU."""
    torch = pytest.importorskip("torch")
    for value in (
        1,
        True,
        1.0,
        np.float32(1),
        np.int64(1),
        np.array(1.0),
        np.array([1.0])[0],
        torch.tensor(1.0),
        [1.0],
        [[1]],
        (np.array([1.0]),),
        np.array([[1.0]]),
        np.array([1], dtype=object),
        np.mean(np.ones((4, 1)), axis=0),
        np.ma.array([1.0]),
        torch.tensor([[1.0]]),
        Decimal(1),
        Fraction(1),
        np.longdouble(1),
    ):
        assert number(value) == 1.0
    assert math.isnan(number(math.nan))


class Raising:
    """A value whose code raises something unforeseen, wherever it is asked."""

    shape: tuple[int, ...]

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)

    def __float__(self) -> float:
        raise AssertionError("not now")

    def __str__(self) -> str:
        raise OSError("nor as text")


class RaisingTextError(Exception):
    """An error that cannot be put in words."""

    def __str__(self) -> str:
        raise KeyError("no words")


class RaisingBoth:
    """A value whose error raises as well."""

    def __float__(self) -> float:
        raise RaisingTextError


NO_NUMBERS: list[object] = [
    "1.0", b"1", None, [], [1.0, 2.0], ["1"], 10**400, object(), np.zeros(3), np.zeros((0, 1)), 1j, [1j],
    np.complex64(1 + 2j), np.array([1j]), np.array([None]), np.array(["1"]), np.datetime64(1, "s"),
    np.ma.masked, np.ma.array([1.0], mask=[True]), np.ma.array(1.0, mask=True), [np.ma.masked],
    Decimal("sNaN"), Raising(), RaisingBoth(), OnDevice(),
]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_number_is_refused(value: object) -> None:
    """Text, several values, nothing, complex, masked, too large, on a device, raising; without a warning."""
    with pytest.raises(RefusedError):
        number(value)
    with pytest.raises(RefusedError):
        whole(value)
    with pytest.raises(RefusedError):
        numbers([0.5, value], 2)


def test_whole_numbers_of_every_kind_are_taken() -> None:
    """A whole float, NumPy's, tensors, of one element too."""
    torch = pytest.importorskip("torch")
    for value in (
        2,
        2.0,
        np.int16(2),
        np.float32(2),
        np.array([2]),
        torch.tensor(2),
        torch.tensor([2.0]),
        [2],
    ):
        assert (whole(value), type(whole(value))) == (2, int)
    assert ids(np.array([0.0, 2.0]), 2).array().tolist() == [0, 2]


def test_columns_of_every_kind_are_taken() -> None:
    """Lists, arrays, tensors; one value stands for all rows."""
    torch = pytest.importorskip("torch")
    expected = [1.0, 2.0, 3.0]
    for value in ([1, 2, 3], (1.0, 2.0, 3.0), np.array(expected, dtype=np.float16), torch.tensor(expected)):
        assert numbers(value, 3).array().tolist() == expected
    assert numbers(torch.tensor(expected, requires_grad=True), 3).array().tolist() == expected
    assert numbers(2.5, 3).array().tolist() == [2.5] * 3
    assert numbers([True, False], 2).array().tolist() == [1, 0]
    assert numbers(np.array([[1.0], [2.0]]), 2).array().tolist() == [1.0, 2.0]
    assert numbers([Decimal(1), Fraction(1, 2)], 2).array().tolist() == [1.0, 0.5]
    assert numbers(np.array([1.5, 2], dtype=object), 2).array().tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    "take",
    [
        lambda: numbers([1.0, 2.0], 3),
        lambda: numbers(["a", "b", "c"], 3),
        lambda: numbers(np.zeros((3, 2)), 3),
        lambda: numbers([1.0, None, 2.0], 3),
        lambda: numbers(OnDevice(), 3),
        lambda: ids([0.5, 1.0, 2.0], 3),
        lambda: words(["a"], 3),
        lambda: numbers(np.array([1j, 1]), 2),
        lambda: numbers(np.ma.array([1.0, 2.0], mask=[False, True]), 2),
        lambda: ids([2.0**60], 1),
        lambda: whole(1.5),
        lambda: whole(math.nan),
        lambda: whole(math.inf),
        lambda: whole(1 << 64),
    ],
)
def test_what_is_no_column_is_refused(take: Callable[[], object]) -> None:
    """Wrong lengths, shapes, types; ids that are no whole numbers."""
    with pytest.raises(RefusedError):
        take()


@given(st.text(st.characters(), max_size=50))
def test_any_text_can_be_sent(stated: str) -> None:
    """Lone surrogates are replaced; everything encodes."""
    text(stated).encode()


def test_long_text_is_cut_and_shows_its_length() -> None:
    """The length is in the text."""
    assert text("x" * 100, 10) == "x" * 10 + "… (100 characters)"


def test_fields_run_no_user_code() -> None:
    """An object of an unknown type is only named."""

    class Slow:
        def __str__(self) -> str:
            raise AssertionError("user code ran")

    assert fields({"a": 1, "b": Slow(), "c": np.int64(3), "": 4}) == {"a": "1", "b": "<Slow>", "c": "3"}


def test_severities_are_known_by_loggers_words() -> None:
    """`warn`, `ERROR`, `fatal`, our own; an unknown word is info."""
    words_of = {
        Severity.WARNING: ("warn", "Warning"),
        Severity.CRITICAL: ("ERROR", "fatal", Severity.CRITICAL),
        Severity.INFO: ("loud", " info "),
        Severity.DEBUG: ("debug",),
    }
    for severity, stated in words_of.items():
        assert {severity_of(word) for word in stated} == {severity}


@pytest.mark.parametrize("value", [1, 0.5, [0.5], (0.5,)])
def test_a_number_is_taken_while_numpy_is_being_imported(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its modules are there before what is in them."""
    for name in ("numpy", "numpy.ma"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert number(value) in (1.0, 0.5)

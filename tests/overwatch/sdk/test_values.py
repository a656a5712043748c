"""Values of trainers: what is taken, what is refused, and that nothing waits for a device."""

import math
from collections.abc import Callable

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
    ):
        assert number(value) == 1.0
    assert math.isnan(number(math.nan))


@pytest.mark.parametrize("value", ["1.0", b"1", None, [1.0], 10**400, object(), np.zeros(3), 1j, OnDevice()])
def test_what_is_no_number_is_refused(value: object) -> None:
    """Text, arrays, nothing, too large, on a device."""
    with pytest.raises(RefusedError):
        number(value)


def test_columns_of_every_kind_are_taken() -> None:
    """Lists, arrays, tensors; one value stands for all rows."""
    torch = pytest.importorskip("torch")
    expected = [1.0, 2.0, 3.0]
    for value in ([1, 2, 3], (1.0, 2.0, 3.0), np.array(expected, dtype=np.float16), torch.tensor(expected)):
        assert numbers(value, 3).array().tolist() == expected
    assert numbers(torch.tensor(expected, requires_grad=True), 3).array().tolist() == expected
    assert numbers(2.5, 3).array().tolist() == [2.5] * 3
    assert numbers([True, False], 2).array().tolist() == [1, 0]


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
        lambda: whole(1.5),
        lambda: whole(1 << 64),
    ],
)
def test_what_is_no_column_is_refused(take: Callable[[], object]) -> None:
    """Wrong lengths, shapes, types; ids that are no whole numbers."""
    with pytest.raises(RefusedError):
        take()


@given(st.text(st.characters(), max_size=50))
def test_any_text_can_be_sent(said: str) -> None:
    """Lone surrogates are replaced; everything encodes."""
    text(said).encode()


def test_long_text_is_cut_and_says_so() -> None:
    """The length is told."""
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
    for severity, said in words_of.items():
        assert {severity_of(word) for word in said} == {severity}

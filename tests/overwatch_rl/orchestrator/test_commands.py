"""Commands and their bounds."""

import math
from pathlib import Path

import msgspec
import pytest

from overwatch_rl.orchestrator.commands import (
    TUNABLES,
    Command,
    Pause,
    Resume,
    Terminate,
    Tune,
    check,
)
from overwatch_rl.web.faults import InvalidError


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_a_tune_is_taken_within_its_bounds_and_refused_beyond(name: str) -> None:
    """The edges themselves, and the next numbers outside; the error names value, bounds and field."""
    bounds = TUNABLES[name]
    inside = [bounds.most, (bounds.least + bounds.most) / 2]
    outside = [math.nextafter(bounds.most, math.inf), math.nextafter(bounds.least, -math.inf), math.nan]
    (outside if bounds.is_open else inside).append(bounds.least)

    for value in inside:
        check(Tune(values={name: value}))
    for value in [*outside, math.inf, -math.inf]:
        with pytest.raises(InvalidError, match=rf"values.{name}: is .*; use a value in") as error:
            check(Tune(values={name: value}))
        assert str(bounds) in str(error.value)
    assert bounds.source


def test_what_cannot_be_tuned_is_named_with_what_can() -> None:
    """A misspelt name is no silent success."""
    with pytest.raises(
        InvalidError, match=r"values.lr: cannot be tuned; use learning_rate, entropy_coef, clip"
    ):
        check(Tune(values={"learning_rate": 1e-4, "lr": 1e-4}))


def test_the_bounds_of_the_seed() -> None:
    """As its document has them."""
    assert {name: str(TUNABLES[name]) for name in ("learning_rate", "entropy_coef", "clip")} == {
        "learning_rate": "(0, 1]", "entropy_coef": "[0, 0.1]", "clip": "[0.05, 0.3]",
    }  # fmt: skip


def test_the_documentation_has_every_bound() -> None:
    """As the table has them, in its order."""
    page = (Path(__file__).parents[3] / "docs" / "orchestrator.md").read_text()

    assert ", ".join(f"`{name}` {bounds}" for name, bounds in TUNABLES.items()) in page


@pytest.mark.parametrize("command", [Tune(values={"clip": 0.1}), Pause(), Resume(reason="x"), Terminate()])
def test_a_command_goes_through_json(command: Command) -> None:
    """By its kind."""
    check(command)
    assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command


@pytest.mark.parametrize(
    "text",
    ['{"kind":"stop"}', '{"kind":"pause","why":"x"}', '{"kind":"tune"}', '{"kind":"tune","values":{}}'],
)
def test_another_kind_or_field_is_refused(text: str) -> None:
    """The union is closed."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Command)

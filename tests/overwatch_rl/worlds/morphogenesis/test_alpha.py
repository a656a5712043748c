"""The alpha controller: movements that end exactly where they should, along their curve."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from overwatch_rl.worlds.morphogenesis.actions import Curve
from overwatch_rl.worlds.morphogenesis.alpha import STEEPNESS, Alpha, Mode, progress


def reference(curve: Curve, share: float) -> float:
    """How far it has come, in plain Python."""
    if curve is Curve.LINEAR:
        return share
    if curve is Curve.COSINE:
        return (1 - math.cos(math.pi * share)) / 2

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-STEEPNESS[curve] * (x - 0.5)))

    return (sigmoid(share) - sigmoid(0)) / (sigmoid(1) - sigmoid(0))


def filled(value: float) -> Tensor:
    """A slot's number."""
    return torch.tensor([[value]])


def moved(start: float, target: float, steps: int, curve: Curve) -> tuple[list[float], list[Mode]]:
    """Alpha and mode after the beginning and after each step of one movement."""
    alpha = Alpha(1, 1)
    everywhere = torch.ones(1, 1, dtype=torch.bool)
    alpha.hold(everywhere, start)
    alpha.move(everywhere, filled(target), torch.tensor([[steps]]), torch.tensor([[int(curve)]]))
    values, modes = [float(alpha.value)], [Mode(int(alpha.mode))]
    for _ in range(steps + 1):
        alpha.advance()
        values.append(float(alpha.value))
        modes.append(Mode(int(alpha.mode)))
    return values, modes


@pytest.mark.parametrize("curve", Curve)
@pytest.mark.parametrize("steps", [0, 3, 5, 8])
@pytest.mark.parametrize(("start", "target"), [(0.0, 0.5), (0.0, 1.0), (0.7, 0.5), (1.0, 0.0), (0.5, 0.5)])
def test_a_movement_follows_its_curve_and_ends_in_time(
    curve: Curve, steps: int, start: float, target: float
) -> None:
    """Every step is the curve's; the last is the target to the bit, and from then on it holds."""
    values, modes = moved(start, target, steps, curve)
    is_still = steps == 0 or start == target
    way = Mode.HOLD if is_still else Mode.UP if target > start else Mode.DOWN
    shares = [1.0 if is_still else min(step / steps, 1.0) for step in range(steps + 2)]
    expected = [start + (target - start) * reference(curve, share) for share in shares]

    assert values == pytest.approx(expected, abs=1e-6)
    assert modes == [Mode.HOLD if share == 1.0 else way for share in shares]
    assert values[-1] == float(filled(target))


@given(curve=st.sampled_from(Curve), shares=st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_a_curve_rises_from_nothing_to_all(curve: Curve, shares: list[float]) -> None:
    """0 at 0, 1 at 1, never falling, never outside."""
    x = torch.tensor([0.0, *sorted(shares), 1.0])
    found = progress(torch.full(x.shape, int(curve)), x)

    assert found[[0, -1]].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert bool((found.diff() >= -1e-6).all())


def test_a_sharper_sigmoid_stays_lower_for_longer() -> None:
    """At a quarter of the steps a straight line has come furthest, the sharpest sigmoid least."""
    curves = (Curve.LINEAR, Curve.SIGMOID_GENTLE, Curve.SIGMOID, Curve.SIGMOID_SHARP)
    found = [float(progress(torch.tensor(int(curve)), torch.tensor(0.25))) for curve in curves]

    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_slots_move_apart_from_one_another() -> None:
    """A movement of one slot leaves another one alone, and what is left of it is counted."""
    alpha = Alpha(1, 2)
    first = torch.tensor([[True, False]])
    alpha.move(first, torch.full((1, 2), 1.0), torch.full((1, 2), 4), torch.zeros(1, 2, dtype=torch.int64))
    alpha.advance()

    assert alpha.value.tolist() == [[0.25, 0.0]]
    assert alpha.left.tolist() == [[3, 0]]


def test_a_saved_movement_goes_on() -> None:
    """To the bit, from its middle."""
    alpha, again = Alpha(1, 1), Alpha(1, 1)
    everywhere = torch.ones(1, 1, dtype=torch.bool)
    alpha.move(everywhere, filled(0.7), torch.tensor([[5]]), torch.tensor([[int(Curve.SIGMOID)]]))
    alpha.advance()
    again.load_state_dict(alpha.state_dict())
    for _ in range(5):
        alpha.advance()
        again.advance()
        assert torch.equal(alpha.value, again.value)
        assert torch.equal(alpha.mode, again.mode)

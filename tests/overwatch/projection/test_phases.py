"""How long phases took, over all ranks."""

import math

import pytest

from overwatch.projection.run import phase_times
from overwatch.state.rhythm import Phase

AT = 1_800_000_000_000_000_000


def _took(duration_s: float) -> Phase:
    phase = Phase()
    phase.push(AT, duration_s)
    return phase


def test_totals_of_ranks_are_added_to_the_same_bits_under_every_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other, also where `sum` keeps what each step loses, as from Python 3.12 on."""
    ranks = {rank: {"update": _took(duration_s)} for rank, duration_s in enumerate((0.1, 0.2, 0.3))}
    monkeypatch.setattr("builtins.sum", lambda values, start=0: math.fsum([start, *values]))
    (reported,) = phase_times(ranks.values())

    assert reported.total_s == 0.1 + 0.2 + 0.3 != math.fsum((0.1, 0.2, 0.3))

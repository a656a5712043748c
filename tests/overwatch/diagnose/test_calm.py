"""Over many ticks: the board keeps still while scores jitter, and a true fault leads at once.

A reorder is a tick at which the order of the envs that were there before is another one.
"""

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.diagnose.assess import JUMP, MARGIN, Ranked, rank
from overwatch.diagnose.factor import HARD, SOFT_CAP
from overwatch.state.arrays import Floats, Ints

START = 10**12
TICK = 100_000_000
TICKS = 200
PER_SECOND = 10
SETTLED = 30
"""Ticks after which the worst of each env's jitter has been seen."""
WIDE = 3 * MARGIN
MOST = 2.0
"""Reorders a second, whatever jitters by less than a fault weighs."""
SEEDS = st.integers(0, 2**32 - 1)


def _uniform(rng: np.random.Generator, n: int) -> Floats:
    return rng.uniform(-WIDE, WIDE, n)


def _edges(rng: np.random.Generator, n: int) -> Floats:
    """Always at one of both ends, many margins apart."""
    return np.where(rng.random(n) < 0.5, -WIDE, WIDE)


def _normal(rng: np.random.Generator, n: int) -> Floats:
    return np.clip(rng.normal(scale=MARGIN / 2, size=n), -0.99 * JUMP / 2, 0.99 * JUMP / 2)


def _rare_spikes(rng: np.random.Generator, n: int) -> Floats:
    """Small noise, and once in a minute of a tick each a spike of one env."""
    noise: Floats = rng.uniform(-0.1, 0.1, n)
    if rng.random() < 1 / 60:
        noise[rng.integers(0, n)] += 2.0
    return noise


JITTERS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "uniform": _uniform, "from end to end": _edges, "normal": _normal, "rare spikes": _rare_spikes,
}  # fmt: skip


def _followed(levels: Floats, jitter: Callable[[np.random.Generator, int], Floats], seed: int) -> int:
    """Reorders over the ticks in which these levels jitter."""
    rng = np.random.default_rng(seed)
    ranked = rank(levels, Ranked(), START)
    for tick in range(SETTLED):
        ranked = rank(np.maximum(levels + jitter(rng, levels.size), 0), ranked, START + tick * TICK)
    reorders = 0
    for tick in range(SETTLED, SETTLED + TICKS):
        before = ranked.order
        ranked = rank(np.maximum(levels + jitter(rng, levels.size), 0), ranked, START + tick * TICK)
        reorders += not np.array_equal(ranked.order, before)
    return reorders


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.6, 12), min_size=2, max_size=40), SEEDS, st.sampled_from(sorted(JITTERS)))
def test_reorders_a_second_are_bounded_under_jitter(levels: list[float], seed: int, jitter: str) -> None:
    """Whatever the levels are, and however many envs stand out."""
    assert _followed(np.array(levels), JITTERS[jitter], seed) / (TICKS / PER_SECOND) <= MOST


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 64), st.floats(0.51, 3.0), SEEDS)
def test_a_score_that_flickers_on_and_off_moves_its_env_alone(n: int, height: float, seed: int) -> None:
    """An env at the edge of a limit comes and goes; the others keep their order among themselves."""
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.uniform(1, 12, n))[::-1].copy()
    ranked = rank(levels, Ranked(), START)
    others: Ints = ranked.order[ranked.order != 0]
    moves, before = 0, ranked.order
    for tick in range(1, TICKS):
        levels[0] = height if tick % 2 else 0.0
        ranked = rank(levels, ranked, START + tick * TICK)
        assert ranked.order[ranked.order != 0].tolist() == others.tolist()
        moves += not np.array_equal(ranked.order, before)
        before = ranked.order
    assert moves <= 1


@settings(deadline=None)
@given(st.integers(2, 64), SEEDS, st.sampled_from(sorted(JITTERS)), st.data())
def test_a_true_fault_leads_at_the_next_tick_however_the_others_jitter(
    n: int, seed: int, jitter: str, data: st.DataObject
) -> None:
    """Ranked first within one tick, and there for as long as it lasts."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0, 5, n)
    ranked = rank(levels, Ranked(), START)
    calm = data.draw(st.integers(0, 20))
    for tick in range(calm):
        ranked = rank(np.maximum(levels + JITTERS[jitter](rng, n), 0), ranked, START + tick * TICK)
    victim = data.draw(st.integers(0, n - 1))
    for tick in range(calm, calm + 10):
        scores = np.maximum(levels + JITTERS[jitter](rng, n), 0)
        scores[victim] = HARD + SOFT_CAP + 2 * WIDE
        ranked = rank(scores, ranked, START + tick * TICK)
        assert ranked.order[0] == victim

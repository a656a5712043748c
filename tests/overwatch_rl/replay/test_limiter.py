"""The limiter: no deadlock in any reachable state, and the ratio that was asked for."""

from random import Random

import pytest

from overwatch_rl.replay.limiter import Limiter, Rate

SIZES = (1, 3, 8, 40)
"""Steps of an insert or of a sample; some are larger than any buffer here."""


def reachable(rate: Rate, inserts: int, samples: int, most: int) -> int:
    """Look at all states that inserts and samples of these sizes lead to; how many there are.

    A table of at most `most` steps drops the oldest. A limiter decides by its lead and by what is held, so
    states that are alike in both are one.
    """
    waiting = [(0, 0, 0)]
    seen = set()
    while waiting:
        inserted, sampled, held = waiting.pop()
        limiter = Limiter(rate)
        limiter.insert(inserted)
        limiter.sample(sampled)
        state = (round(limiter.lead, 6) if rate.samples_per_insert else 0.0, held)
        if state in seen:
            continue
        seen.add(state)
        may_insert, may_sample = limiter.may_insert(held), limiter.may_sample(held)
        assert may_insert or may_sample, f"neither side goes on: {rate} {inserted=} {sampled=} {held=}"
        if may_insert:
            waiting.append((inserted + inserts, sampled, min(held + inserts, most)))
        if may_sample:
            waiting.append((inserted, sampled + samples, held))
    return len(seen)


@pytest.mark.parametrize("ratio", [None, 0.25, 1.0, 3.7])
@pytest.mark.parametrize("buffer", [None, 0.0, 2.0, 50.0])
def test_no_state_is_a_deadlock(ratio: float | None, buffer: float | None) -> None:
    """Every state that any sizes lead to, small buffers and large requests among them."""
    states = 0
    for min_steps in (1, 5, 30):
        rate = Rate(samples_per_insert=ratio, buffer=buffer, min_steps=min_steps)
        for inserts in SIZES:
            for samples in SIZES:
                states += reachable(rate, inserts, samples, 40)

    assert states > 48


@pytest.mark.parametrize("ratio", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("stalled", ["insert", "sample", "neither"])
def test_the_ratio_holds_while_a_side_stalls(ratio: float, stalled: str) -> None:
    """Each side stops for long times, at random: samples for each insert stay within 2 %."""
    chance = Random(11)  # noqa: S311 a test's own chance
    limiter = Limiter(Rate(samples_per_insert=ratio, min_steps=100, buffer=200 * max(1.0, ratio)))
    held = 0
    while limiter.inserted < 200_000:
        quiet = chance.random() < 0.5
        for _ in range(chance.randrange(1, 400)):
            if not (quiet and stalled == "insert") and limiter.may_insert(held):
                limiter.insert(16)
                held = min(held + 16, 10_000)
            if not (quiet and stalled == "sample") and limiter.may_sample(held):
                limiter.sample(32)
    measured = limiter.sampled / (limiter.inserted - 100)

    assert measured == pytest.approx(ratio, rel=0.02)


def test_nothing_is_sampled_below_the_minimum() -> None:
    """Inserts go on until then, whatever the ratio wants, and again once a table was cleared."""
    limiter = Limiter(Rate(samples_per_insert=1.0, min_steps=10, buffer=0.0))
    limiter.insert(9)

    assert not limiter.may_sample(9)
    assert limiter.may_insert(9)
    limiter.insert(1)
    assert limiter.may_sample(10)
    limiter.insert(1)
    assert not limiter.may_insert(11)
    limiter.clear()
    assert limiter.may_insert(0)
    assert not limiter.may_sample(0)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ({"samples_per_insert": 0.0}, "samples per insert is 0.0"),
        ({"samples_per_insert": float("nan")}, "samples per insert is nan"),
        ({"min_steps": 0}, "min_steps is 0"),
        ({"buffer": -1.0}, "buffer is -1.0"),
    ],
)
def test_a_rate_that_is_none_is_named(rate: dict[str, float], expected: str) -> None:
    """With the value and what it must be."""
    with pytest.raises(ValueError, match=expected):
        Rate(**rate)  # type: ignore[arg-type]

"""A test marked `sampled` runs a few of its parameters in `make test`, and the others in `make long`."""

from pathlib import Path
from typing import Final

import pytest

from tests.sampling import drawn

pytest_plugins = ["pytester"]

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = """
import pytest

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(10))
def test_each(n): print(f"ran {n};")

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(2))
def test_few(n): pass

@pytest.mark.sampled(1, of="two")
def test_one(): print("ran one;")

@pytest.mark.sampled(1, of="two")
def test_two(): print("ran two;")

def test_other(): pass
"""


def _ran(pytester: pytest.Pytester, *words: str) -> tuple[int, frozenset[str]]:
    common = ("-p", "tests.sampling", "-p", "no:cacheprovider", "-s")
    result = pytester.runpytest_inprocess(*common, *words, "-W", "ignore::pytest.PytestUnknownMarkWarning")
    numbers = (line.partition("ran ")[2].partition(";")[0] for line in result.outlines if "ran " in line)
    return result.parseoutcomes()["passed"], frozenset(numbers)


def test_the_drawn_and_the_others_are_all_and_the_seed_decides(pytester: pytest.Pytester) -> None:
    """Both runs together leave nothing out; one that is named runs whatever was drawn."""
    pytester.makepyfile(test_it=MODULE)
    seed = ("-p", "no:randomly")
    count, few = _ran(pytester, *seed, "-m", "not long")
    others, rest = _ran(pytester, *seed, "-m", "long")

    assert (count, others, len(few), len(rest)) == (3 + 2 + 1 + 1, 7 + 1, 3 + 1, 7 + 1)
    assert _ran(pytester, *seed, "-m", "not long") == (count, few)
    assert few | rest == {*map(str, range(10)), "one", "two"}
    for one in rest - {"one", "two"}:
        assert _ran(pytester, *seed, "-m", "not long", f"test_it.py::test_each[{one}]") == (1, {one})


def test_another_seed_draws_others_whatever_the_order() -> None:
    """So all of them run, in time; workers collect in one order, a person may name folders in another."""
    names = [f"test[{n}]" for n in range(20)]

    assert drawn(names, 4, 1) == drawn(reversed(names), 4, 1)
    assert set().union(*(drawn(names, 4, seed) for seed in range(40))) == set(names)

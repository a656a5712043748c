"""Which parameters of an exhaustive test run in `make test`: a few, drawn anew each session.

`@pytest.mark.sampled(n)` keeps n of a function's parameters, drawn by the seed that pytest-randomly prints,
the same in every worker; the others are `long`. With `of="…"` it keeps n of all tests of the same words.
A test that is named by itself runs always; `--randomly-seed=…` draws the same again.
"""

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest


def drawn(nodeids: Iterable[str], count: int, seed: object) -> set[str]:
    """So many of them, by the seed and whatever their order."""
    known = sorted(nodeids)
    return set(random.Random(f"{seed}{known}").sample(known, min(count, len(known))))  # noqa: S311 a test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what was not drawn, before the marks select what runs."""
    seed = config.getoption("randomly_seed", None)
    groups = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            groups[mark.kwargs.get("of", item.nodeid.split("[", 1)[0])].append(item)
    for found in groups.values():
        mark = found[0].get_closest_marker("sampled")
        assert mark is not None
        kept = drawn((item.nodeid for item in found), *mark.args, seed)
        for item in found:
            if item.nodeid not in kept:
                item.add_marker(pytest.mark.long)

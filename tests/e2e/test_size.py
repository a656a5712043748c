"""`overwatch size` beside real runs of shapes that its units were not fitted to."""

from pathlib import Path

import pytest

from overwatch.sizing import Load, cost, units
from tests.bench.bench_size import SHAPES
from tests.bench.size.measuring import measure

NEAR = 0.2
COUNTED = ("network_bytes", "records", "journal_bytes", "recording_bytes", "series")
"""What other work on the machine does not change, while nothing is folded together."""


def _beside(load: Load, found: dict[str, float], resources: tuple[str, ...]) -> None:
    assert load not in SHAPES
    for resource in resources:
        expected = cost(resource, load, units())
        print(f"{resource}: measured {found[resource]:.4g}, computed {expected:.4g}")
        assert found[resource] == pytest.approx(expected, rel=NEAR), resource


def test_bytes_records_and_series_are_as_computed(tmp_path: Path) -> None:
    """A shape between those of the fit."""
    load = Load(runs=5, envs=48, hz=3.0)
    _beside(load, measure(tmp_path, load, 8.0), COUNTED)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_cpu_and_memory_are_as_computed(tmp_path: Path) -> None:
    """A larger shape than any of the fit, for half a minute."""
    load = Load(runs=20, envs=128, hz=4.0)
    _beside(load, measure(tmp_path, load, 30.0), (*COUNTED, "collector_cores", "collector_mib"))

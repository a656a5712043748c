"""The calculator over units that are made up."""

import msgspec
import pytest

from overwatch.sizing import UNITS, Load, Units, cost, units
from overwatch.sizing.plan import GIB, kept_bytes, plan
from overwatch.sizing.text import amount, text

MADE_UP = Units(
    taken="never",
    each={
        "network_bytes": {"rank": 100.0, "request": 30.0, "window": 10.0, "env_window": 1.0},
        "records": {"window": 2.0},
        "points": {"rank": 10.0},
        "journal_bytes": {"window": 1000.0},
        "recording_bytes": {"window": 10.0},
        "snapshot_bytes": {"run": 1000.0},
        "collector_cores": {"one": 0.01, "run": 0.001, "window": 0.001},
        "collector_mib": {"one": 100.0, "rank": 0.5},
        "series": {"one": 4.0, "run": 200.0},
        "trainer_cores": {"call": 1e-5},
        "exporter_cores": {"rank": 0.005},
        "exporter_mib": {"one": 35.0, "rank": 0.3},
    },
)


def test_a_cost_is_the_sum_of_what_there_is_of_each_unit() -> None:
    """Two runs of three ranks: six ranks, twenty requests, sixty windows, 240 env windows."""
    load = Load(runs=2, ranks=3, envs=4, hz=10.0)

    assert cost("network_bytes", load, MADE_UP) == pytest.approx(6 * 100 + 20 * 30 + 60 * 10 + 240)
    assert cost("series", load, MADE_UP) == 4 + 2 * 200


def test_what_is_faster_than_a_window_is_folded() -> None:
    """Only the trainer's own calls grow beyond 10 Hz."""
    slow, fast = Load(hz=10.0), Load(hz=100.0)

    assert cost("records", fast, MADE_UP) == cost("records", slow, MADE_UP)
    assert cost("trainer_cores", fast, MADE_UP) == 10 * cost("trainer_cores", slow, MADE_UP)


def test_collectors_are_as_many_as_their_cores_or_their_runs_take() -> None:
    """Each has its own ticks to pay for as well."""
    busy = plan(Load(runs=130, hz=9.0), 30.0, MADE_UP)
    many = plan(Load(runs=5000, hz=0.001), 30.0, MADE_UP)

    assert busy.value("collectors", "collectors") == 2
    assert busy.value("collectors", "CPU") == pytest.approx(1.3 + 2 * 0.01)
    assert many.value("collectors", "collectors") == 8
    assert plan(Load(), 30.0, MADE_UP).value("collectors", "collectors") == 1


def test_a_recording_thins_with_age() -> None:
    """Ten minutes whole, six hours once a second, then once a minute."""
    load = Load(runs=1, hz=10.0)

    assert kept_bytes(load, 1 / 1440, MADE_UP) == pytest.approx(60 * 100)
    assert kept_bytes(load, 0.25, MADE_UP) == pytest.approx(600 * 100 + 21_000 * 10)
    a_day = 600 * 100 + 21_000 * 10 + (86_400 - 21_600) * 10 / 60
    assert kept_bytes(load, 1, MADE_UP) == pytest.approx(a_day)
    assert plan(load, 1.0, MADE_UP).value("collectors", "recording, retention") == pytest.approx(a_day / GIB)


def test_one_run_beyond_one_collector_and_a_full_page_are_warned_of() -> None:
    """Neither is helped by more collectors alone."""
    wide = plan(Load(runs=1, ranks=100, hz=10.0), 1.0, MADE_UP)
    full = plan(Load(runs=400, hz=0.1), 1.0, MADE_UP)

    assert [line.split(":")[0] for line in wide.warnings] == [
        "one run takes 1.0 cores and stays at one collector"
    ]
    assert [line.split(":")[0] for line in full.warnings] == ["80,004 series a collector"]
    assert plan(Load(), 1.0, MADE_UP).warnings == ()


def test_amounts_are_for_a_person() -> None:
    """Counts without decimals, rates with a prefix."""
    found = plan(Load(runs=130, envs=2000, hz=9.0), 30.0, MADE_UP)
    shown = {(line.where, line.name): amount(line) for line in found.lines}

    assert shown["collectors", "collectors"] == "2"
    assert shown["network", "to the collectors"] == "2.38 MB/s"
    assert shown["collectors", "CPU"] == "1.32 cores"
    assert text(found).splitlines()[0] == "130 runs × 1 ranks × 2,000 envs at 9 Hz, kept for 30 days"
    with pytest.raises(KeyError, match="collectors hats"):
        found.value("collectors", "hats")


def test_the_units_of_the_package_are_whole() -> None:
    """Every resource has some, of its own features, and none costs less than nothing."""
    known = units()

    assert set(known.each) == set(UNITS)
    for resource, found in known.each.items():
        assert found.keys() <= set(UNITS[resource])
        assert found
        assert min(found.values()) >= 0
    assert msgspec.json.decode(msgspec.json.encode(known), type=Units) == known

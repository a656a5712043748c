"""A run of days with storms, thinned on the way: every finding is found again, and the folder stays small.

The short form has the default grains at a fortieth of their times; the long one is a week at their own.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakes import SECOND
from tests.overwatch.recordings.week import DAY, MIB, Opening, Plan, Result, Storm, record, storms

FILES = "exporters.otlp_file"


def missed(result: Result, within_s: float) -> tuple[list[Opening], list[Opening]]:
    """Findings that a replay does not open within so many seconds, and those that it adds."""
    missing, again = [], sorted(result.replayed(), key=lambda opening: opening[1])
    for key, tick in sorted(result.live, key=lambda opening: opening[1]):
        found = next(
            (other for other in again if other[0] == key and 0 <= other[1] - tick <= within_s * SECOND), None
        )
        if found is None:
            missing.append((key, tick))
        else:
            again.remove(found)
    return missing, again


def test_hours_with_storms_are_found_again_at_the_same_tick(tmp_path: Path) -> None:
    """All that opened live opens in a replay of what is left, at its tick, and nothing else does."""
    kinds = ("kl", "throttle", "nan")
    troubles = tuple(Storm(at_s=300.0 + 600 * n, kind=kind) for n, kind in enumerate(kinds))
    plan = Plan(envs=8, days=0.022, quiet_s=15, busy_s=0, storms=troubles, before_s=8, after_s=20)
    result = record(
        tmp_path,
        plan,
        f"{FILES}.rotation.max_minutes=2",
        f"{FILES}.thinning.whole_minutes=0.25",
        f"{FILES}.thinning.second_hours=0.15",
    )

    assert {"policy-kl-divergence", "thermal-throttle", "non-finite"} <= {
        key.partition(":")[0] for key, _ in result.live
    }
    assert result.report.error is None
    missing, added = missed(result, within_s=0)
    assert (missing, added) == ([], [])


def test_a_budget_that_is_too_small_for_numbers_costs_no_finding(tmp_path: Path) -> None:
    """The folder stays within it; what is found is found within a second of its tick."""
    troubles = tuple(Storm(at_s=200.0 + 400 * n, kind="kl") for n in range(2))
    plan = Plan(envs=512, days=0.01, quiet_s=15, busy_s=0, storms=troubles, before_s=8, after_s=20)
    result = record(
        tmp_path,
        plan,
        f"{FILES}.rotation.max_minutes=1",
        f"{FILES}.rotation.max_megabytes=1",
        f"{FILES}.budget.run_mib=2",
        f"{FILES}.thinning.whole_minutes=0.25",
    )

    assert max(size for _, size in result.sizes) <= 2 * MIB + 2 * MIB
    assert not result.report.gone
    missing, added = missed(result, within_s=1)
    assert (missing, added) == ([], [])


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    ("plan", "budget_mib"),
    [
        (Plan(envs=64, days=7, quiet_s=60, busy_s=60, idle_s=20, storms=storms(21, 7)), 9),
        (
            Plan(
                envs=4096,
                days=7,
                quiet_s=300,
                busy_s=30,
                idle_s=60,
                storms=storms(7, 7),
                before_s=5,
                after_s=35,
            ),
            130,
        ),
    ],
    ids=["64 envs", "4,096 envs"],
)
def test_a_week_is_found_again_and_the_folder_stays_flat(tmp_path: Path, plan: Plan, budget_mib: int) -> None:
    """Seven days at the default times of thinning; size by day, findings and their delay are printed."""
    result = record(
        tmp_path,
        plan,
        f"{FILES}.rotation.max_megabytes={budget_mib // 2}",
        f"{FILES}.budget.run_mib={budget_mib}",
    )
    missing, added = missed(result, within_s=1)
    days = [max(size for day, size in result.sizes if number <= day < number + 1) for number in range(7)]
    print(
        f"{plan.envs} envs, {plan.days:g} days: {result.sent_bytes / MIB:.0f} MiB sent, "
        f"at most {[round(size / MIB, 2) for size in days]} MiB on disk by day, "
        f"{len(result.live)} findings {dict(Counter(key.partition(':')[0] for key, _ in result.live))}, "
        f"{len(missing)} not found again, {len(added)} added"
    )
    assert (missing, added) == ([], [])
    assert not result.report.gone
    # Beside the budget there is what is written to, and a piece that is being made.
    assert max(days) <= 1.5 * budget_mib * MIB
    assert all(later <= 1.1 * earlier for earlier, later in pairwise(days[3:]))
    assert plan.days * DAY == 604_800

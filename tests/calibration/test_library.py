"""The library of real trainings: drawn by a seed alone, written whole, small; the scoreboard counts right."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from overwatch import sdk
from overwatch.catalog import Scope
from overwatch.events import Column, EpisodeEnded, Measured, PhaseEnded, scalars
from overwatch.sdk import launch
from overwatch.sdk.link import Link
from tests.calibration.library.drawing import Draw
from tests.calibration.library.kinds import BROKEN, HEALTHY, KINDS, plan
from tests.calibration.library.series import FOLDER, HALVES, Case, Moment, Series, kept, read, write
from tests.calibration.library.tape import record
from tests.calibration.scoreboard import PAGE, Score, page, score

FILES = {path.stem: path for half in HALVES for path in kept(half)}
LARGEST, MOST = 150_000, 15_000_000
"""Bytes of one series, and of all."""
CASE = Case(kind="zoo", algorithm="ppo", world="cartpole", seed="1")


def _series(*moments: Moment, began_ns: int | None = None, case: Case = CASE) -> Series:
    return Series(
        case=case, start_ns=10**18, settings={}, began_ns=began_ns, returns=((1.0, 22.0), (2.0, 500.0)),
        error=None, cpu_s=1.0, moments=moments,
    )  # fmt: skip


def test_there_are_enough_kinds_of_both() -> None:
    """At least 25 faults; 240 trainings in both halves."""
    assert len(BROKEN) >= 25
    assert len(HEALTHY) >= 10
    assert len(plan("open", "open")) >= 120


def test_what_is_trained_follows_from_the_seed_alone() -> None:
    """The sealed half is another for each commit, and neither is the open one; a half is never cut short."""
    halves = [plan("open", "open"), plan("sealed", "a" * 40), plan("sealed", "b" * 40)]

    assert plan("sealed", "a" * 40) == halves[1]
    assert all(set(one).isdisjoint(other) for one in halves for other in halves if one is not other)
    assert len({len(half) for half in halves}) == 1
    assert len({case.name for case in halves[0]}) == len(halves[0])
    assert Draw(CASE).between("rate", 1, 10) == Draw(CASE).between("rate", 1, 10)


def test_all_that_is_kept_is_of_the_plan_and_small() -> None:
    """A file that no plan has is of settings that nobody can look up."""
    for half in HALVES:
        drawn = FOLDER / half / "drawn-from"
        root = drawn.read_text(encoding="utf-8") if drawn.exists() else half
        assert {path.stem for path in kept(half)} <= {case.name for case in plan(half, root)}
    assert {case.kind for case in plan("open", "open")} == set(KINDS)
    sizes = [path.stat().st_size for path in FILES.values()]
    assert max(sizes) <= LARGEST
    assert sum(sizes) <= MOST


def test_a_series_is_what_was_written(tmp_path: Path) -> None:
    """Rounded, times too; what is not finite and what is 0 stays so; once rounded it stays the same."""
    values = {"a": 0.123456789, "b": 0.0, "c": np.nan, "d": -np.inf, "e": 1e300}
    event = Measured(at=1_000_000_001, scope=Scope.POLICY, values=scalars(values), index=3)
    write(_series(Moment(5_000_001, 0, (event,))), tmp_path / "one.bin")
    (moment,) = read(tmp_path / "one.bin").moments
    (kept_event,) = moment.events

    found = {name: column.first() for name, column in kept_event.values.items()}
    assert found["a"] == pytest.approx(values["a"], rel=1e-4)
    assert (found["b"], found["d"], found["e"]) == (0.0, -np.inf, 1e300)
    assert np.isnan(found["c"])
    assert (moment.after_ns, kept_event.at, kept_event.index) == (5_000_000, 1_000_000_000, 3)
    write(read(tmp_path / "one.bin"), tmp_path / "two.bin")
    assert (tmp_path / "two.bin").read_bytes() == (tmp_path / "one.bin").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.bin", "two.bin"]


def test_what_is_folded_loses_no_episode_and_no_second(tmp_path: Path) -> None:
    """Episodes of one request go together, but never two of the same env; ends of a phase add up."""
    ended = [
        EpisodeEnded(at=10**9, env_id=Column.of([env]), episode_return=Column.of([float(number)]))
        for number, env in enumerate((0, 1, 0, 2))
    ]
    phases = [PhaseEnded(at=10**9, phase="learn", duration_s=0.5) for _ in range(4)]
    write(_series(Moment(10**9, 0, (*ended, *phases))), tmp_path / "one.bin")
    (moment,) = read(tmp_path / "one.bin").moments

    episodes = [event for event in moment.events if isinstance(event, EpisodeEnded)]
    assert [one.env_id.array().tolist() for one in episodes] == [[0, 1], [0, 2]]
    assert [one.episode_return.array().tolist() for one in episodes] == [[0, 1], [2, 3]]
    assert [one.duration_s for one in moment.events if isinstance(one, PhaseEnded)] == [2.0]


def test_a_tape_has_all_that_a_run_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of their stamps, with the end; the SDK is the real one."""
    monkeypatch.setattr(launch, "Link", Link)
    tape = record()
    with sdk.start(run_id="tape", quiet=True, sample=False) as run:
        run.update(update=1, kl_divergence=math.nan)
        run.env_crashed(3, ValueError("gone"))

    kinds = [type(event).__name__ for moment in tape.moments for event in moment.events]
    assert sorted(kinds) == ["EnvCrashed", "Measured", "NonFiniteSeen", "RunFinished", "RunStarted"]
    assert (kinds[0], kinds[-1], tape.updates) == ("RunStarted", "RunFinished", 1)
    stamps = [moment.after_ns for moment in tape.moments]
    assert stamps == sorted(stamps)


def _updates(nan_from: int) -> Iterator[Moment]:
    for number in range(1, 30):
        values = {"overwatch.policy.kl_divergence": np.nan if number >= nan_from else 0.01}
        at = 10**18 + number * 10**9
        event = Measured(at=at, scope=Scope.POLICY, values=scalars(values), index=number)
        yield Moment(number * 10**9, 0, (event,))


@pytest.mark.parametrize("nan_from", [3, 21])
def test_a_finding_counts_from_the_fault_on(tmp_path: Path, nan_from: int) -> None:
    """After the fault began it is found; before, it is a false alarm, and so it is in a healthy run."""
    case = msgspec.structs.replace(CASE, kind="nan-weights")
    path = tmp_path / "one.bin"
    write(_series(*_updates(nan_from), began_ns=20 * 10**9, case=case), path)
    found = score(path)

    assert found.healthy_updates == 19
    is_late = nan_from > 20
    assert ("policy-kl-divergence" in found.strict or "non-finite" in found.strict) is is_late
    assert bool([alarm for alarm in found.alarms if alarm.is_false]) is not is_late
    assert not is_late or 0 <= (found.latency or 0) <= 2
    write(_series(*_updates(nan_from)), path)
    assert score(path).alarms
    assert all(alarm.is_false for alarm in score(path).alarms)


def test_the_page_is_of_runs_that_are_kept() -> None:
    """`make diagnosis` writes it anew; what was trained since is not on it yet."""
    kinds = (
        PAGE.read_text(encoding="utf-8")
        .partition("### Broken runs by kind")[2]
        .partition("### By algorithm")[0]
    )
    named = set(re.findall(r"^\| `([a-z0-9-]+)` \|", kinds, re.MULTILINE))

    assert named
    assert named <= {name.partition(".")[0] for name in FILES}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_page_is_what_the_rules_find() -> None:
    """All of it."""
    halves: dict[str, list[Score]] = {half: [score(path) for path in kept(half)] for half in HALVES}

    assert PAGE.read_text(encoding="utf-8") == page(halves)
    assert FOLDER.exists()

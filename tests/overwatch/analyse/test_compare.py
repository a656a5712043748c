"""`overwatch compare`: settings, divergence, verdicts; as text, JSON and a page."""

import copy
import html
import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from overwatch.analyse.compare import Aligned, CompareConfig, aligned, compare, divergence, partings
from overwatch.analyse.compare_page import compare_page
from overwatch.analyse.curves import Axis, Curve
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.catalog import Scope
from overwatch.catalog.durations import duration
from tests.overwatch.analyse.browser import opened
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.simulate.runs import overwatch, record

_SIZE = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "120")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes in which nothing is wrong."""
    return record(tmp_path_factory.mktemp("healthy") / "run", *_SIZE, "--seed", "5", "--run-id", "healthy")


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, but that its policy collapses after a minute."""
    words = (*_SIZE, "--seed", "5", "--run-id", "collapsed", "--fault", "policy-collapse@60")
    return record(tmp_path_factory.mktemp("collapsed") / "run", *words)


@pytest.fixture(scope="module")
def _both_once(healthy: Path, collapsed: Path) -> tuple[RunHistory, RunHistory]:
    return read_history(healthy), read_history(collapsed)


@pytest.fixture
def both(_both_once: tuple[RunHistory, RunHistory]) -> tuple[RunHistory, RunHistory]:
    """Their stories; a test may change its own."""
    return copy.deepcopy(_both_once)


@pytest.fixture(scope="module")
def logs(healthy: Path, collapsed: Path) -> tuple[Path, Path]:
    """Their logs of snapshots, which are read sooner."""
    return healthy / "snapshots.jsonl", collapsed / "snapshots.jsonl"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Forty updates, and the same whose policy collapses after eight."""
    folder, words = tmp_path_factory.mktemp("short"), ("--gpus", "1", "--envs", "4", "--slots", "0")
    runs = {"fine": (), "collapsed": ("--fault", "policy-collapse@8")}
    made = [
        record(folder / name, *words, "--seconds", "40", "--run-id", name, *fault)
        for name, fault in runs.items()
    ]
    return made[0] / "snapshots.jsonl", made[1] / "snapshots.jsonl"


def test_a_collapse_is_found_where_it_began(both: tuple[RunHistory, RunHistory]) -> None:
    """The same to the bit before it; KL parts within a few updates of it; returns are worse at the end."""
    reported = compare(both, CompareConfig())
    metrics = {metric.name: metric.against[0] for metric in reported.metrics}
    kl = metrics["kl_divergence"]

    assert kl.divergence.identical_until is not None
    assert 55 <= kl.divergence.identical_until <= 61
    assert kl.divergence.parted is not None
    assert 59 <= kl.divergence.parted[0] <= 66
    worse = {metrics[name].effect.verdict for name in ("kl_divergence", "return", "explained_variance")}
    assert worse == {"worse"}
    assert metrics["entropy"].effect.verdict == "lower"
    assert metrics["learning_rate"].effect.verdict == "same"
    assert partings(reported)[0].at[0] <= kl.divergence.parted[0]


def test_two_seeds_of_one_configuration_get_no_verdict_of_worse(
    both: tuple[RunHistory, RunHistory], tmp_path: Path
) -> None:
    """Only the seed differs, and no number parts."""
    other = record(tmp_path / "other", *_SIZE, "--seed", "6", "--run-id", "other")
    reported = compare([both[0], read_history(other)], CompareConfig())

    assert reported.config == {"seed": ("5", "6")}
    assert partings(reported) == []
    words = {metric.name: metric.against[0].effect.verdict for metric in reported.metrics}
    assert [name for name, word in words.items() if word in ("better", "worse")] == []


@pytest.mark.parametrize("axis", get_args(Axis))
def test_each_axis_aligns(both: tuple[RunHistory, RunHistory], axis: Axis) -> None:
    """The same verdict by each of them, with where it parted on that axis."""
    reported = compare(both, CompareConfig(align=axis))
    (kl,) = next(metric.against for metric in reported.metrics if metric.name == "kl_divergence")
    whole = both[0].curves.policy["kl_divergence"].along(axis)[-1]

    assert kl.effect.verdict == "worse"
    assert kl.divergence.parted is not None
    assert 0.45 * whole < kl.divergence.parted[0] < 0.58 * whole


def test_json_holds_all_of_it(logs: tuple[Path, Path]) -> None:
    """As it was asked for."""
    reported = json.loads(overwatch("compare", *logs, "--align", "steps", "--format", "json").stdout)

    assert (reported["align"], reported["last"], len(reported["runs"])) == ("steps", 0.25, 2)
    assert {"effect", "divergence", "place", "aligned", "enough"} == set(reported["metrics"][0]["against"][0])


def test_text_shows_all_of_it(logs: tuple[Path, Path]) -> None:
    """Runs, configuration, findings, divergence, verdicts, and what they mean."""
    text = overwatch("compare", *logs).stdout

    stated = (
        "A  healthy", "B  collapsed", "CONFIGURATION  the same", "policy-collapse", "FIRST DIVERGENCE",
        "worse", "the same to the bit up to", "VERDICT", "two seeds of one configuration",
    )  # fmt: skip
    for word in stated:
        assert word in text


@pytest.mark.parametrize("fmt", ["text", "html", "json"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_short_run_that_collapsed_is_never_called_no_worse(
    short: tuple[Path, Path], fmt: str, *, is_turned: bool
) -> None:
    """Findings of one side, the first parting and what a verdict needs are the headline of every format."""
    healthy, collapsed = "BA" if is_turned else "AB"
    result = overwatch("compare", *(reversed(short) if is_turned else short), "--format", fmt)
    text = html.unescape(result.stdout)

    assert f"Only in {collapsed}: Policy collapse (critical, from " in text
    assert f"Only in {healthy}" not in text
    assert re.search(r"B parts from A (from the start in [\w ]+; )?at update \d+ in [\w ]+, then", text)
    assert "numbers worse" not in text
    share = re.search(r"values, a verdict needs 20 of each run; try --last ([\d.]+)\.", text)
    assert share is not None
    if fmt == "json":
        assert json.loads(text)["headlines"][0]["severity"] == ("ok" if is_turned else "critical")
    again = overwatch("compare", *short, "--last", share[1]).stdout
    assert re.search(r"[1-9]\d* numbers worse than in A, 0 better", again)
    assert "try --last" not in again


def test_runs_without_a_value_in_common_are_reported_so(short: tuple[Path, Path]) -> None:
    """No share of their end would do, so none is named."""
    some = short[0].with_name("some.jsonl")
    some.write_text("".join(short[0].read_text().splitlines(keepends=True)[:12]))
    text = overwatch("compare", some, short[1]).stdout

    assert "A not ended, B completed." in text
    assert re.search(r"Where B parts from A is not known: \d+ values in common, it needs 24\.", text)
    assert re.search(r"No verdict on \d+ numbers: \d values, a verdict needs 20 of each run\.", text)


def test_more_than_two_runs_are_compared_with_the_first(both: tuple[RunHistory, RunHistory]) -> None:
    """A column of verdicts for each."""
    reported = compare((*both, both[0]), CompareConfig())

    for metric in reported.metrics:
        assert [one.place for one in metric.against] == [1, 2]
        assert metric.against[1].effect.verdict == "same"


def test_each_cell_of_the_runs_stands_under_its_heading(both: tuple[RunHistory, RunHistory]) -> None:
    """Recording, outcome and numbers of each run, by the words above them."""
    reported = compare(both, CompareConfig())
    part = compare_page(both, reported).split("<h2>Runs")[1].split("</section>")[0]
    head, *rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in part.split("<tr")[1:]]

    assert len(rows) == len(reported.runs)
    for run, cells in zip(reported.runs, rows, strict=True):
        found = dict(zip(head, (html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells), strict=True))
        assert (found["run"], found["recording"], found["outcome"]) == (run.run, run.path, run.ending)
        assert (found["updates"], found["steps"]) == (f"{run.updates:,.0f}", f"{run.steps:,.0f}")
        assert found["took"] == duration(run.seconds)


def test_a_page_shows_the_curves_of_all(logs: tuple[Path, Path], tmp_path: Path) -> None:
    """In a browser, without a complaint."""
    out = tmp_path / "compare.html"
    assert overwatch("compare", *logs, "--format", "html", "-o", out).exit_code == 0
    text = out.read_text()

    assert "<script" not in text
    assert text.count("curve s1") > 10
    done = opened(out, tmp_path / "profile")
    assert done.stdout.count("<svg") == text.count("<svg")
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("--last", "0"), "last is 0"),
        (("--last", "nan"), "last is nan"),
        (("--align", "epoch"), "'epoch' is not one of"),
        (("--run", "healthy"), "1 --run for 2 recordings"),
        (("--run", "nope", "--run", "collapsed"), "it holds healthy"),
    ],
)
def test_bad_input_is_status_2(logs: tuple[Path, Path], words: tuple[str, ...], stated: str) -> None:
    """Naming the value."""
    result = overwatch("compare", *logs, *words)

    assert result.exit_code == 2
    assert stated in result.stderr


def test_one_run_cannot_be_compared(logs: tuple[Path, Path], both: tuple[RunHistory, RunHistory]) -> None:
    """Nor too many."""
    assert overwatch("compare", logs[0]).exit_code == 2
    with pytest.raises(AnalyseError, match="17 runs cannot be compared; name 2 to 16"):
        compare(both[:1] * 17, CompareConfig())


def _pair(a: np.ndarray, b: np.ndarray) -> Aligned:
    return Aligned(x=np.arange(len(a), dtype=np.float64), a=a, b=b)


def _curve(updates: list[float], values: list[float], pace: float = 1.0) -> Curve:
    curve = Curve(name="return", label="return", scope=Scope.POLICY)
    for update, value in zip(updates, values, strict=True):
        curve.add(value, update, update * pace, update * 100)
    return curve


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_noise_alone_seldom_parts(alike: float) -> None:
    """In at most 5 of 200 pairs of 200 updates, also where neighbours are alike."""
    dice = np.random.default_rng(6)

    def one() -> np.ndarray:
        values = dice.normal(size=200)
        for place in range(1, 200):
            values[place] += alike * values[place - 1]
        return values + np.linspace(0, 5, 200)

    parted = sum(divergence(_pair(one(), one())).parted is not None for _ in range(200))

    assert parted <= 5


def test_a_step_is_found_where_it_is() -> None:
    """Of eight deviations at 120 of 200: within a block."""
    dice = np.random.default_rng(7)
    for _ in range(20):
        a, b = dice.normal(size=200), dice.normal(size=200)
        b[120:] += 8
        found = divergence(_pair(a, b))
        assert found.parted is not None
        assert 115 <= found.parted[0] <= 122
        assert not found.from_start


def test_a_difference_from_the_start_is_called_so() -> None:
    """There is no place to look at."""
    dice = np.random.default_rng(8)
    found = divergence(_pair(dice.normal(size=100), dice.normal(size=100) + 20))

    assert found.from_start


def test_runs_that_are_the_same_to_the_bit_show_until_where() -> None:
    """NaN beside NaN is the same; all the same is identical."""
    a = np.arange(60.0)
    a[5] = np.nan
    b = a.copy()
    b[41] = np.nextafter(b[41], 100)

    assert divergence(_pair(a, b)).identical_until == 40
    assert divergence(_pair(a, b)).parted is None
    assert divergence(_pair(a, a.copy())).identical


def test_too_few_values_are_reported() -> None:
    """None at all, too."""
    assert "it needs" in str(divergence(_pair(np.arange(10.0), np.arange(10.0) + 5)).why)
    assert "0 values" in str(divergence(_pair(np.zeros(0), np.zeros(0))).why)


def test_updates_are_paired_by_number() -> None:
    """What only one has is left out; after a restart from a checkpoint the later value counts."""
    a = _curve([1, 2, 3, 4, 3, 4, 5], [1, 2, 3, 4, 30, 40, 50])
    b = _curve([2, 3, 5, 6], [2, 3, 5, 6])

    pair = aligned(a, b, "update")

    assert pair.x.tolist() == [2, 3, 5]
    assert pair.a.tolist() == [2, 30, 50]
    assert pair.b.tolist() == [2, 3, 5]


def test_by_time_each_place_has_the_newest_value_by_then() -> None:
    """At the places of the sparser run, where both have begun and neither is over."""
    fast = _curve([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60], pace=1.0)
    slow = _curve([1, 2, 3, 4], [1, 2, 3, 4], pace=2.5)

    pair = aligned(fast, slow, "time")

    assert pair.x.tolist() == [2.5, 5.0]
    assert pair.a.tolist() == [20, 50]
    assert pair.b.tolist() == [1, 2]
    assert len(aligned(fast, _curve([100], [1.0]), "time").x) == 0

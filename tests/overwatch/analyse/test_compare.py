"""`overwatch compare`: settings, divergence, verdicts; as text, JSON and a page."""

import copy
import html
import json
import re
from pathlib import Path

import pytest

from overwatch.analyse.compare import CompareConfig, compare, partings
from overwatch.analyse.compare_page import compare_page
from overwatch.analyse.curves import AXES, Axis
from overwatch.analyse.source import AnalyseError
from overwatch.analyse.story import Story, read_story
from overwatch.catalog.durations import duration
from tests.overwatch.analyse.browser import opened
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
def _both_once(healthy: Path, collapsed: Path) -> tuple[Story, Story]:
    return read_story(healthy), read_story(collapsed)


@pytest.fixture
def both(_both_once: tuple[Story, Story]) -> tuple[Story, Story]:
    """Their stories; a test may change its own."""
    return copy.deepcopy(_both_once)


@pytest.fixture(scope="module")
def logs(healthy: Path, collapsed: Path) -> tuple[Path, Path]:
    """Their logs of snapshots, which are read sooner."""
    return healthy / "snapshots.jsonl", collapsed / "snapshots.jsonl"


def test_a_collapse_is_found_where_it_began(both: tuple[Story, Story]) -> None:
    """The same to the bit before it; KL parts within a few updates of it; returns are worse at the end."""
    told = compare(both, CompareConfig())
    metrics = {metric.name: metric.against[0] for metric in told.metrics}
    kl = metrics["kl_divergence"]

    assert kl.divergence.identical_until is not None
    assert 55 <= kl.divergence.identical_until <= 61
    assert kl.divergence.parted is not None
    assert 59 <= kl.divergence.parted[0] <= 66
    worse = {metrics[name].effect.verdict for name in ("kl_divergence", "return", "explained_variance")}
    assert worse == {"worse"}
    assert metrics["entropy"].effect.verdict == "lower"
    assert metrics["learning_rate"].effect.verdict == "same"
    assert partings(told)[0].at[0] <= kl.divergence.parted[0]


def test_two_seeds_of_one_configuration_get_no_verdict_of_worse(
    both: tuple[Story, Story], tmp_path: Path
) -> None:
    """Only the seed differs, and no number parts."""
    other = record(tmp_path / "other", *_SIZE, "--seed", "6", "--run-id", "other")
    told = compare([both[0], read_story(other)], CompareConfig())

    assert told.config == {"seed": ("5", "6")}
    assert partings(told) == []
    words = {metric.name: metric.against[0].effect.verdict for metric in told.metrics}
    assert [name for name, word in words.items() if word in ("better", "worse")] == []


@pytest.mark.parametrize("axis", AXES)
def test_each_axis_aligns(both: tuple[Story, Story], axis: Axis) -> None:
    """The same verdict by each of them, with where it parted on that axis."""
    told = compare(both, CompareConfig(align=axis))
    (kl,) = next(metric.against for metric in told.metrics if metric.name == "kl_divergence")
    whole = both[0].curves.policy["kl_divergence"].along(axis)[-1]

    assert kl.effect.verdict == "worse"
    assert kl.divergence.parted is not None
    assert 0.45 * whole < kl.divergence.parted[0] < 0.58 * whole


def test_json_holds_all_of_it(logs: tuple[Path, Path]) -> None:
    """As it was asked for."""
    told = json.loads(overwatch("compare", *logs, "--align", "steps", "--format", "json").stdout)

    assert (told["align"], told["last"], len(told["runs"])) == ("steps", 0.25, 2)
    assert {"effect", "divergence", "place", "aligned"} == set(told["metrics"][0]["against"][0])


def test_text_says_all_of_it(logs: tuple[Path, Path]) -> None:
    """Runs, configuration, findings, divergence, verdicts, and what they mean."""
    text = overwatch("compare", *logs).stdout

    said = (
        "A  healthy", "B  collapsed", "CONFIGURATION  the same", "policy-collapse", "FIRST DIVERGENCE",
        "worse", "the same to the bit up to", "VERDICT", "two seeds of one configuration",
    )  # fmt: skip
    for word in said:
        assert word in text


def test_more_than_two_runs_are_compared_with_the_first(both: tuple[Story, Story]) -> None:
    """A column of verdicts for each."""
    told = compare((*both, both[0]), CompareConfig())

    for metric in told.metrics:
        assert [one.place for one in metric.against] == [1, 2]
        assert metric.against[1].effect.verdict == "same"


def test_each_cell_of_the_runs_stands_under_its_heading(both: tuple[Story, Story]) -> None:
    """Recording, outcome and numbers of each run, by the words above them."""
    told = compare(both, CompareConfig())
    part = compare_page(both, told).split("<h2>Runs")[1].split("</section>")[0]
    head, *rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in part.split("<tr")[1:]]

    assert len(rows) == len(told.runs)
    for run, cells in zip(told.runs, rows, strict=True):
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
    ("words", "said"),
    [
        (("--last", "0"), "last is 0"),
        (("--last", "nan"), "last is nan"),
        (("--align", "epoch"), "'epoch' is not one of"),
        (("--run", "healthy"), "1 --run for 2 recordings"),
        (("--run", "nope", "--run", "collapsed"), "it holds healthy"),
    ],
)
def test_bad_input_is_status_2(logs: tuple[Path, Path], words: tuple[str, ...], said: str) -> None:
    """Naming the value."""
    result = overwatch("compare", *logs, *words)

    assert result.exit_code == 2
    assert said in result.stderr


def test_one_run_cannot_be_compared(logs: tuple[Path, Path], both: tuple[Story, Story]) -> None:
    """Nor too many."""
    assert overwatch("compare", logs[0]).exit_code == 2
    with pytest.raises(AnalyseError, match="17 runs cannot be compared; name 2 to 16"):
        compare(both[:1] * 17, CompareConfig())

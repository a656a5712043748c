"""`overwatch compare`: settings, divergence, verdicts; as text, JSON and a page."""

import json
from pathlib import Path

import pytest

from overwatch.analyse.compare import CompareConfig, compare, partings
from overwatch.analyse.source import AnalyseError
from overwatch.analyse.story import read_story
from tests.overwatch.analyse.browser import opened
from tests.overwatch.simulate.runs import overwatch, record

SIZE = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "120")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes in which nothing is wrong."""
    return record(tmp_path_factory.mktemp("healthy") / "run", *SIZE, "--seed", "5", "--run-id", "healthy")


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, but that its policy collapses after a minute."""
    words = (*SIZE, "--seed", "5", "--run-id", "collapsed", "--fault", "policy-collapse@60")
    return record(tmp_path_factory.mktemp("collapsed") / "run", *words)


def test_a_collapse_is_found_where_it_began(healthy: Path, collapsed: Path) -> None:
    """The same to the bit before it; KL parts within a few updates of it; returns are worse at the end."""
    told = compare([read_story(healthy), read_story(collapsed)], CompareConfig())
    metrics = {metric.name: metric.against[0] for metric in told.metrics}
    kl = metrics["kl_divergence"]

    assert kl.divergence.identical_until is not None
    assert 55 <= kl.divergence.identical_until <= 61
    assert kl.divergence.parted is not None
    assert 59 <= kl.divergence.parted[0] <= 66
    assert {metrics[name].effect.verdict for name in ("kl_divergence", "return", "explained_variance")} == {
        "worse"
    }
    assert metrics["entropy"].effect.verdict == "lower"
    assert metrics["learning_rate"].effect.verdict == "same"
    assert partings(told)[0].at[0] <= kl.divergence.parted[0]


def test_two_seeds_of_one_configuration_get_no_verdict_of_worse(healthy: Path, tmp_path: Path) -> None:
    """Only the seed differs, and no number parts."""
    other = record(tmp_path / "other", *SIZE, "--seed", "6", "--run-id", "other")
    told = compare([read_story(healthy), read_story(other)], CompareConfig())

    assert told.config == {"seed": ("5", "6")}
    assert partings(told) == []
    words = {metric.name: metric.against[0].effect.verdict for metric in told.metrics}
    assert [name for name, word in words.items() if word in ("better", "worse")] == []


@pytest.mark.parametrize("axis", ["update", "time", "steps"])
def test_each_axis_aligns(healthy: Path, collapsed: Path, axis: str) -> None:
    """The same verdicts by each of them."""
    result = overwatch("compare", healthy, collapsed, "--align", axis, "--format", "json")
    told = json.loads(result.stdout)
    metrics = {metric["name"]: metric["against"][0] for metric in told["metrics"]}

    assert told["align"] == axis
    assert metrics["kl_divergence"]["effect"]["verdict"] == "worse"
    assert metrics["kl_divergence"]["divergence"]["parted"] is not None


def test_text_says_all_of_it(healthy: Path, collapsed: Path) -> None:
    """Runs, configuration, findings, divergence, verdicts, and what they mean."""
    text = overwatch("compare", healthy, collapsed).stdout

    for word in ("A  healthy", "B  collapsed", "CONFIGURATION  the same", "policy-collapse", "FIRST DIVERGENCE",
                 "the same to the bit up to", "VERDICT", "worse", "two seeds of one configuration"):  # fmt: skip
        assert word in text


def test_more_than_two_runs_are_compared_with_the_first(healthy: Path, collapsed: Path) -> None:
    """A column of verdicts for each."""
    told = json.loads(overwatch("compare", healthy, collapsed, healthy, "--format", "json").stdout)

    for metric in told["metrics"]:
        assert [one["place"] for one in metric["against"]] == [1, 2]
        assert metric["against"][1]["effect"]["verdict"] == "same"


def test_a_page_shows_the_curves_of_all(healthy: Path, collapsed: Path, tmp_path: Path) -> None:
    """In a browser, without a complaint."""
    out = tmp_path / "compare.html"
    assert overwatch("compare", healthy, collapsed, "--format", "html", "-o", out).exit_code == 0
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
def test_bad_input_is_status_2(healthy: Path, collapsed: Path, words: tuple[str, ...], said: str) -> None:
    """Naming the value."""
    result = overwatch("compare", healthy, collapsed, *words)

    assert result.exit_code == 2
    assert said in result.stderr


def test_one_run_cannot_be_compared(healthy: Path) -> None:
    """Nor too many."""
    assert overwatch("compare", healthy).exit_code == 2
    with pytest.raises(AnalyseError, match="17 runs cannot be compared; name 2 to 16"):
        compare([read_story(healthy)] * 17, CompareConfig())

"""`overwatch catalog`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch.catalog import KL, ROWS
from overwatch.catalog.presets import PRESETS
from overwatch.cli import main


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["catalog", *arguments])


@pytest.mark.parametrize(
    "spelling",
    [KL.name, "kl_divergence", "overwatch_policy_kl_divergence", "train/approx_kl", "TELE-110"],
)
def test_a_metric_is_shown_by_any_of_its_spellings(spelling: str) -> None:
    """Name, short name, Prometheus name, alias and record lead to the same row."""
    (shown,) = json.loads(_run("show", spelling, "--format", "json").stdout)

    assert shown["name"] == KL.name
    assert shown["limits"] == dict.fromkeys(PRESETS, "warning > 0.015, critical > 0.03")
    assert "finding:policy-kl-divergence" in shown["feeds"]
    assert {"name": "policy/approxkl_avg", "library": "TRL", "estimator": "k2",
            "moment": "mean over all epochs and minibatches"} in shown["aliases"]  # fmt: skip


def test_all_metrics_that_a_word_means_are_shown() -> None:
    """A policy and a learner both have an entropy; a label is a spelling too."""
    shown = json.loads(_run("show", "entropy", "--format", "json").stdout)

    assert [row["name"] for row in shown] == ["overwatch.policy.entropy", "learner.entropy"]
    assert [row["name"] for row in json.loads(_run("show", "kl", "--format", "json").stdout)] == [KL.name]


def test_a_metric_is_shown_in_words() -> None:
    """The question first, then everything that is known."""
    result = _run("show", "entropy")

    assert result.exit_code == 0
    assert "Does the policy still explore" in result.stdout
    assert "limits ppo-continuous none" in result.stdout
    assert "None" not in result.stdout


def test_a_record_that_is_no_metric_is_shown_too() -> None:
    """A record leads to its field, its event, or to why it is struck out."""
    assert "`run.task` of the snapshot" in _run("show", "TELE-001").stdout
    assert "struck out" in _run("show", "tele-525").stdout


def test_for_a_wrong_spelling_the_nearest_is_named() -> None:
    """An error states what was meant, or how to see all."""
    assert "did you mean" in _run("show", "kl_divergance").stderr
    assert "overwatch catalog list" in _run("show", "§§§").stderr
    assert _run("show", "§§§").exit_code == 1


def test_all_metrics_are_listed() -> None:
    """One line a row, and how many there are; as JSON the same rows."""
    result = _run("list")

    assert result.stdout.splitlines()[-1].startswith(f"{len(ROWS)} metrics")
    assert [row["name"] for row in json.loads(_run("list", "--format", "json").stdout)] == [
        row.name for row in ROWS
    ]


def test_a_list_is_narrowed() -> None:
    """By scope, by library, by what a preset judges."""
    assert "overwatch.policy" not in _run("list", "--scope", "gpu").stdout
    assert "actor/ppo_kl (k1" in _run("list", "--library", "verl").stdout
    assert _run("list", "--library", "sample-factory").stdout.count("train/fraction_clipped") == 1
    assert "did you mean 'PufferLib'" in _run("list", "--library", "puferlib").stderr
    judged = _run("list", "--judged", "--preset", "esper").stdout
    assert "overwatch.policy.advantage_std" in judged
    assert "overwatch.policy.learning_rate" not in judged
    wrong = _run("list", "--preset", "espr")
    assert wrong.exit_code != 0
    assert "did you mean 'esper'" in wrong.stderr


ROOT = Path(__file__).parents[3]


def _registry(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["catalog", "registry", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """This version's registry as files."""
    made = tmp_path / "registry"
    assert _registry("write", str(made)).exit_code == 0
    return made


def test_what_is_written_is_what_is_committed(folder: Path) -> None:
    """An installed Overwatch can hand its names on without its sources."""
    committed = {path.name: path.read_text() for path in (ROOT / "otel/registry").glob("*.yaml")}

    assert {path.name: path.read_text() for path in folder.glob("*.yaml")} == committed


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """Status 2."""
    (tmp_path / "file").write_text("")

    result = _registry("write", str(tmp_path / "file" / "below"))

    assert result.exit_code == 2
    assert "Not a directory" in result.stderr


@pytest.mark.skipif(shutil.which("weaver") is None, reason="OpenTelemetry's weaver is not on the path")
def test_weaver_takes_the_registry() -> None:
    """Its own policies besides ours; it loads OpenTelemetry's conventions, which needs the network."""
    command = ["weaver", "registry", "check", "-r", str(ROOT / "otel/registry"), "--v2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_librarys_names_are_printed() -> None:
    """Each with its row and what differs; names that look like one with the reason; where they come from."""
    text = _run("aliases", "sb3").stdout
    assert text.startswith("SB3 ")
    assert "collected by a run" in text.splitlines()[0]
    assert re.search(r"train/entropy_loss +entropy_nats +negated, only where the library is known", text)
    assert re.search(r"train/approx_kl +kl_divergence +k3, mean over the last epoch's minibatches", text)
    verl = _run("aliases", "VERL").stdout
    assert "from source" in verl.splitlines()[0]
    assert re.search(r"critic/rewards/mean +less the KL penalty", verl.partition("custom numbers")[2])


def test_a_librarys_names_are_data() -> None:
    """The same as JSON."""
    stated = json.loads(_run("aliases", "prime rl", "--format", "json").stdout)
    assert (stated["library"], stated["collected_by"]) == ("prime-rl", "source")
    assert {"row": "mfu", "name": "perf/mfu", "library": "prime-rl", "scale": "0.01"} in stated["names"]
    assert stated["left"]["is_truncated/all/mean"]


def test_a_library_that_is_not_known_is_an_error_that_names_the_known() -> None:
    """Or the nearest."""
    wrong = _run("aliases", "zzz")
    assert wrong.exit_code != 0
    assert "known are SB3, CleanRL, TRL" in wrong.stderr
    assert "did you mean 'PufferLib'" in _run("aliases", "puferlib").stderr


def test_a_name_of_one_library_alone_is_shown() -> None:
    """As every spelling is."""
    (shown,) = json.loads(_run("show", "train/entropy_loss", "--format", "json").stdout)
    assert shown["name"] == "overwatch.policy.entropy_nats"

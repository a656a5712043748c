"""Factors of other distributions: installed, judged beside our own, switched off when they fail."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.diagnose.judging import DiagnosisConfig, Judging, judging, unknown
from overwatch.events import Event
from tests import fakes
from tests.fakes import SECOND, START_NS

FACTORS = '''
import numpy as np
from overwatch.diagnose.factor import Factor

calls = []


def unlucky(fleet, limits):
    """Envs whose id ends with 3."""
    weight = np.where(fleet.ids % 10 == 3, 50.0, 0.0)
    return Factor(name="unlucky", status="degraded", weight=weight, say=lambda row: f"id {fleet.ids[row]}")


def raises(fleet, limits):
    calls.append(1)
    raise RuntimeError("no such table")


def short(fleet, limits):
    return Factor(name="short", status="degraded", weight=np.zeros(1), say=str)
'''
ENTRY_POINTS = """[overwatch.factors]
unlucky = lucky_factors:unlucky
raises = lucky_factors:raises
short = lucky_factors:short
gone = lucky_factors:nothing_here
"""
EVENTS: list[Event] = [fakes.envs(START_NS, range(20), index=1, reward=[0.0] * 20)]


def _wheel(folder: Path) -> Path:
    wheel = folder / "lucky_factors-1.0-py3-none-any.whl"
    info = "lucky_factors-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("lucky_factors.py", FACTORS)
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: lucky-factors\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/entry_points.txt", ENTRY_POINTS)
        packed.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with four factors, installed by pip into a folder of its own."""
    site = tmp_path / "site"
    requested = [
        "install",
        "--no-index",
        "--no-deps",
        "--quiet",
        "--target",
        str(site),
        str(_wheel(tmp_path)),
    ]
    subprocess.run([sys.executable, "-m", "pip", *requested], check=True, capture_output=True, timeout=120)
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("lucky_factors", None)


def _judged(how: Judging, ticks: int = 3) -> tuple[Assessment, list[float]]:
    """The assessment after some ticks, and the scores of envs 0 to 3."""
    state, assessment, scores = fakes.folded(EVENTS), Assessment(), []
    for tick in range(ticks):
        judged = assess(state, load(dump(assessment)), START_NS + tick * SECOND // 10, how)
        assessment, scores = judged.assessment, judged.anomalies.scores[:4].tolist()
    return assessment, scores


@pytest.mark.usefixtures("installed")
def test_an_installed_factor_weighs_no_more_than_ours_may() -> None:
    """Its env has its score and its reason; a weight in the configuration multiplies it, 0 turns it off."""
    only = dict.fromkeys(("raises", "short", "gone"), 0.0)
    how = judging(DiagnosisConfig(plugins=only))
    judged = assess(fakes.folded(EVENTS), Assessment(), START_NS, how)

    assert judged.anomalies.reasons(3) == ("id 3",)
    assert judged.anomalies.status(3) == "degraded"
    assert _judged(how)[1] == [0, 0, 0, 3.0]
    assert _judged(judging(DiagnosisConfig(plugins={**only, "unlucky": 0.5})))[1] == [0, 0, 0, 1.5]
    assert _judged(judging(DiagnosisConfig(plugins={**only, "unlucky": 0.0})))[1] == [0, 0, 0, 0]


@pytest.mark.usefixtures("installed")
def test_a_factor_that_fails_is_switched_off_for_the_run_and_reported() -> None:
    """It is called once, across checkpoints too; the finding names it and why, and the others go on."""
    assessment, scores = _judged(judging(DiagnosisConfig()))
    (found,) = [item.problem for item in assessment.findings.values() if item.problem.code == "factor-off"]

    assert scores == [0, 0, 0, 3.0]
    assert len(sys.modules["lucky_factors"].calls) == 1
    assert "gone (" in found.message
    assert "RuntimeError: no such table" in found.message
    assert assessment.off["short"] == "ValueError: weight has to be 20 numbers from 0 on, one an env"


@pytest.mark.usefixtures("installed")
def test_a_factor_that_is_not_installed_is_named_with_those_that_are() -> None:
    """A weight for nothing is an error of the configuration."""
    assert list(unknown(DiagnosisConfig(plugins={"unluky": 2.0}))) == [
        ("diagnosis.plugins.unluky", "no installed plugin gives this; there is gone, raises, short, unlucky")
    ]
    assert list(unknown(DiagnosisConfig(plugins={"unlucky": 2.0}))) == []


def test_a_configuration_that_makes_no_sense_is_refused() -> None:
    """The message names the value."""
    with pytest.raises(ValueError, match="weight of plugin a is -1"):
        DiagnosisConfig(plugins={"a": -1.0})

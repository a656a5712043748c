"""Recordings that the tests of this folder read; simulated once."""

import copy
from pathlib import Path

import pytest

from overwatch.analyse.run_history import RunHistory
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.simulate.runs import record

SIZE = ("--gpus", "2", "--envs", "4", "--slots", "3", "--seconds", "40")


@pytest.fixture(scope="session")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds in which seeds are culled, one of two lanes throttles and its envs crash."""
    faults = ("--fault", "cull-storm@4", "--fault", "thermal-throttle@8", "--fault", "crash-storm@20")
    return record(
        tmp_path_factory.mktemp("storm") / "run", *SIZE, "--seed", "3", "--run-id", "storm", *faults
    )


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds in which nothing is wrong."""
    return record(tmp_path_factory.mktemp("calm") / "run", *SIZE, "--seed", "4", "--run-id", "calm")


@pytest.fixture(scope="session")
def _read_once(storm: Path) -> RunHistory:
    return read_history(storm)


@pytest.fixture
def run_history(_read_once: RunHistory) -> RunHistory:
    """Of the run in which much is wrong; a test may change its own."""
    return copy.deepcopy(_read_once)


@pytest.fixture(scope="session")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty-five seconds: the policy collapses after twenty-five, and the run completes."""
    size = ("--gpus", "1", "--envs", "4", "--slots", "0", "--seconds", "45")
    fault = ("--fault", "policy-collapse@25")
    return record(tmp_path_factory.mktemp("sick") / "run", *size, "--seed", "5", "--run-id", "sick", *fault)

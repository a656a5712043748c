"""The page about diagnosis states what the code does: factors, statuses, keys, the example."""

import re
from pathlib import Path

import pytest
import yaml

from overwatch.config import load
from overwatch.diagnose.anomaly import FACTORS, STATUSES, score_envs
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.fleet import fleet_of
from tests import fakes
from tests.overwatch.diagnose.test_anomaly import FIRES

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
TABLES = [line.strip("|").split("|") for line in PAGE.splitlines() if line[:1] == "|"]
ROWS = [[cell.strip() for cell in cells] for cells in TABLES]


def test_every_factor_is_listed_once() -> None:
    """In the order in which they are judged."""
    reported = [row[0].strip("`") for row in ROWS if row[0][:1] == "`" and row[0].strip("`") in FIRES]

    assert reported == [factor.__name__ for factor in FACTORS]


@pytest.mark.parametrize("name", FIRES)
def test_the_table_of_statuses_is_what_factors_do(name: str) -> None:
    """The example that fires each factor has the status in whose row the factor is, and no other."""
    anomalies = score_envs(fleet_of(fakes.folded(FIRES[name][0])), AnomalyLimits())
    made_by = {row[0]: re.findall(r"`(\w+)`", row[1]) for row in ROWS if row[0] in (*STATUSES, "unknown")}

    assert [status for status, factors in made_by.items() if name in factors] == [anomalies.status(0)]
    assert list(made_by) == [*reversed(STATUSES), "unknown"]


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    """As it is written, but for the plugin that nobody has installed."""
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "overwatch.yaml"
    path.write_text(example, encoding="utf-8")

    found = load(path, ()).diagnosis
    assert found.anomaly.weights.silent == 0
    assert yaml.safe_load(example)["diagnosis"]["plugins"] == dict(found.plugins)

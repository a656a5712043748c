"""A limit is written once: changed in its row, it changes screen, alert and pages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = '''
"""What every reader makes of a KL of 0.025."""
import json
from overwatch.catalog import KL, Scope
from overwatch.events import Measured, Origin, Record, RunStarted, scalars
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.generate import FILES
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.serve.prometheus import RunPage

SECOND, start = 1_000_000_000, 1_800_000_000 * 1_000_000_000
fold, tick, origin = Fold(), next_tick(start), Origin(run_id="r", epoch="e", ours=True)
events = [RunStarted(at=start)]
events += [
    Measured(at=start + n * SECOND, scope=Scope.POLICY, values=scalars({KL.name: 0.025}), index=n)
    for n in range(1, 41)
]
for seq, event in enumerate(events, 1):
    body = request([Record(origin=origin, event=event, seq=seq)], {})
    frame = fold.advance(tick, [Batch(sequence=seq, stamp=tick, signal=Signal.LOGS, body=body)], [])
    tick += SECOND
(snapshot,) = frame.snapshots.values()
page = {(one.labels.get('metric'), one.labels.get('level')): one.value for family in RunPage().families(frame) for one in family.samples if one.name == 'overwatch_policy_updates_beyond_limit_total'}
rule = FILES["dashboards/rules/overwatch.yaml"]()
print(json.dumps({
    "screen": [snapshot.policy["kl_divergence"].status, snapshot.policy["kl_divergence"].limit.text],
    "findings": [one.severity for one in snapshot.findings if one.code == "policy-kl-divergence"],
    "counted": [page['kl_divergence', level] for level in ("warning", "critical")],
    "alert": [line.split("Limits of preset ppo: ")[1] for line in rule.splitlines() if "description" in line and "trust region constraint" in line and "kl_k1" not in line],
    "catalogue": [line.split("|")[6:8] for line in FILES["docs/catalog.md"]().splitlines() if f"`{KL.name}`" in line and KL.asks in line],
}))
'''  # noqa: E501 a script that is read by a machine


def reported(folder: Path, change: tuple[str, str] | None) -> dict[str, Any]:
    """What the readers show, of sources with one change in the row."""
    shutil.copytree(
        ROOT / "src/overwatch", folder / "overwatch", ignore=shutil.ignore_patterns("__pycache__")
    )
    area = folder / "overwatch/catalog/policy.py"
    if change is not None:
        assert area.read_text().count(change[0]) == 1
        area.write_text(area.read_text().replace(*change))
    (folder / "emit.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "emit.py"], cwd=folder, env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As it is."""
    return reported(tmp_path_factory.mktemp("before"), None)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With KL's limits a third higher and lower than 0.025."""
    change = ("limits=above(0.015, 0.03),\n    direction", "limits=above(0.012, 0.017),\n    direction")
    return reported(tmp_path_factory.mktemp("after"), change)


def test_the_screen_judges_by_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A warning becomes critical, and the limit beside it is the new one."""
    assert (before["screen"], after["screen"]) == (["warning", ">.015"], ["critical", ">.017"])


def test_the_alert_fires_by_it_and_states_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The finding that the rule asks for, the counter of its budget, and the words that it sends."""
    assert (before["findings"], after["findings"]) == (["warning"], ["critical"])
    assert (before["counted"], after["counted"]) == ([40, 0], [0, 40])
    assert [text.rstrip("'") for text in before["alert"]] == ["warning > 0.015, critical > 0.03."]
    assert [text.rstrip("'") for text in after["alert"]] == ["warning > 0.012, critical > 0.017."]


def test_the_reference_shows_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Boards are edited in Grafana: tests/overwatch/generate/test_boards.py compares their thresholds."""
    assert [[cell.strip() for cell in cells] for cells in before["catalogue"]] == [["> 0.015", "> 0.03"]]
    assert [[cell.strip() for cell in cells] for cells in after["catalogue"]] == [["> 0.012", "> 0.017"]]

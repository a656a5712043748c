"""A new metric is one row: no view, page or message is touched, and all of them have it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROW = """
    _row(
        name="overwatch.policy.novelty",
        short="novelty",
        unit="{state}",
        asks="How many states were never seen before?",
        label="novelty",
        limits=above(5.0),
        fix="look where it goes",
    ),
)
"""
SCRIPT = '''
"""Send the new metric through the wire, and print what every reader makes of it."""
import json
from overwatch.catalog import Scope, find
from overwatch.events import Measured, NonFiniteSeen, Origin, Record, RunStarted, scalars
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.generate.catalog_page import catalog_page
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.serve.exposition import page as rendered
from overwatch.serve.prometheus import RunPage
from overwatch.tui.context import Context, freshness
from overwatch.tui.panels import drawer
from tests.overwatch.catalog.surroundings import catalog_problems

SECOND, start = 1_000_000_000, 1_800_000_000 * 1_000_000_000
fold, tick, origin = Fold(), next_tick(start), Origin(run_id="new", epoch="e", ours=True)
name = find("novelty", Scope.POLICY).name
events = [RunStarted(at=start)]
events += [
    Measured(at=start + n * SECOND, scope=Scope.POLICY, values=scalars({name: 9.5}), index=n)
    for n in range(1, 41)
]
events.append(NonFiniteSeen(at=start + 41 * SECOND, scope=Scope.POLICY, metric=name, kind="nan"))
for seq, event in enumerate(events, 1):
    body = request([Record(origin=origin, event=event, seq=seq)], {})
    while tick < event.at:
        fold.advance(tick, [], [])
        tick += FAST_NS
    fold.advance(tick, [Batch(sequence=seq, stamp=tick, signal=Signal.LOGS, body=body)], [])
    tick += FAST_NS
frame = fold.advance(tick, [], [])
(snapshot,) = frame.snapshots.values()
found = [one for one in snapshot.findings if one.subject.id == "novelty"]
page = rendered(RunPage().families(frame))[0].decode().splitlines()
context = Context(width=120, height=40, fresh=freshness(snapshot.link, 0.0))
lines = [line for one in found for line in drawer.finding(snapshot, one, 90, context)]
print(json.dumps({
    "wrong": catalog_problems(),
    "value": snapshot.policy["novelty"].value,
    "limit": snapshot.policy["novelty"].limit.text,
    "findings": [one.code for one in found],
    "hints": [one.hint for one in found],
    "drawer": ["".join(span.text for span in line) for line in lines],
    "feed": [line.fields for line in snapshot.feed],
    "metrics": [line for line in page if line.startswith("overwatch_policy_novelty{")],
    "docs": [line for line in catalog_page().splitlines() if "`overwatch.policy.novelty`" in line],
}))
'''


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every reader makes of a metric whose only trace is one row of one file."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(
        ROOT / "src/overwatch", source / "overwatch", ignore=shutil.ignore_patterns("__pycache__")
    )
    area = source / "overwatch/catalog/critic.py"
    area.write_text(area.read_text().rstrip().removesuffix(")") + ROW.lstrip("\n"))
    script = source / "emit.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=source,
        env={"PYTHONPATH": f"{source}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_catalogue_with_it_is_in_order(reported: dict[str, Any]) -> None:
    """One row is all there is to write."""
    assert reported["wrong"] == []


def test_it_is_in_the_snapshot_with_its_limit(reported: dict[str, Any]) -> None:
    """Value and limit in use, as of any other row."""
    assert (reported["value"], reported["limit"]) == (9.5, ">5")


def test_it_is_in_a_finding_and_its_drawer(reported: dict[str, Any]) -> None:
    """Beyond its limit for long enough it is found; the drawer shows value, limit and what to do."""
    assert "policy-novelty" in reported["findings"]
    assert "look where it goes" in reported["hints"]
    assert any("9.500" in line and "limit >5" in line for line in reported["drawer"])


def test_it_is_in_the_feed(reported: dict[str, Any]) -> None:
    """What is not finite is a line with its name."""
    assert {"metric": "overwatch.policy.novelty", "count": "1"} in reported["feed"]


def test_it_is_on_the_page_of_metrics(reported: dict[str, Any]) -> None:
    """Under the name that follows from its own."""
    assert reported["metrics"] == ['overwatch_policy_novelty{rl_run_id="new"} 9.5']


def test_it_is_in_the_reference(reported: dict[str, Any]) -> None:
    """Its question and its limit."""
    (line,) = (line for line in reported["docs"] if "never seen before" in line)
    assert "> 5" in line

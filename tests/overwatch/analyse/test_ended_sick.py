"""A run that ended sick reads so wherever it is read: nothing cleared, nothing calls it well."""

import json
import re
from pathlib import Path

import pytest

from tests.overwatch.analyse.reading import read_history
from tests.overwatch.simulate.runs import overwatch

SNAPSHOTS = ["", "snapshots.jsonl"]
"""Judged again from what was sent, and as it was judged live."""


@pytest.fixture(params=SNAPSHOTS, ids=["otlp", "snapshots"])
def recording(sick: Path, request: pytest.FixtureRequest) -> Path:
    """One recording in both of its forms."""
    return sick / request.param


def test_the_snapshot_shows_what_stood_and_that_it_did_not_clear(recording: Path) -> None:
    """The verdict, the findings with the moment of the end, lanes without verdicts."""
    last = read_history(recording).last

    assert last.verdict.severity == "critical"
    assert re.match(r"completed; ended in policy collapse \(open \d+s\)", last.verdict.text)
    (collapse,) = [one for one in last.findings if one.code == "policy-collapse"]
    assert collapse.cleared_at is None
    assert collapse.ended_at is not None
    assert collapse.since < collapse.ended_at <= last.time
    assert [lane.bound for lane in last.system.gpus] == [None]


def test_the_story_ends_a_finding_with_its_run(recording: Path) -> None:
    """Open at the end, and as long as the run let it be."""
    run_history = read_history(recording)
    (found,) = [one for one in run_history.findings if one.finding.code == "policy-collapse"]

    assert found.open
    assert found.until == pytest.approx(45, abs=0.2)


def test_the_report_never_states_that_it_lasted(recording: Path, tmp_path: Path) -> None:
    """It was the run that ended."""
    out = tmp_path / "report.html"
    assert overwatch("report", recording, "-o", out).exit_code == 0
    page = out.read_text(encoding="utf-8")

    assert "open at the end" in page
    assert "completed; ended in policy collapse" in page
    card = page[page.index("policy-collapse") :][:400]
    assert "still open at the end" in card
    assert "lasted" not in card


def test_the_audit_fails(recording: Path) -> None:
    """A script must not go on with this policy."""
    reported = overwatch("audit", recording)

    assert reported.exit_code == 1
    assert re.search(r"policy-collapse: .*, open at the end$", reported.stdout, re.MULTILINE)


def test_query_and_compare_print_open(recording: Path, sick: Path) -> None:
    """In text and in JSON."""
    (row,) = overwatch("query", recording, "kind=policy-collapse", "--format", "json").stdout.splitlines()
    assert json.loads(row)["status"] == "open"
    assert ", open at the end" in overwatch("query", recording, "kind=policy-collapse").stdout

    reported = json.loads(overwatch("compare", recording, sick, "--format", "json").stdout)
    assert [run["open_at_end"][0] for run in reported["runs"]] == ["policy-collapse"] * 2
    assert "completed, open at the end: policy-collapse" in overwatch("compare", recording, sick).stdout


def test_the_summary_of_a_replay_has_the_verdict(recording: Path) -> None:
    """The first thing after the counts."""
    lines = overwatch("replay", recording, "--summary").stdout.splitlines()

    assert lines[1].split(maxsplit=1)[0] == "critical"
    assert "completed; ended in policy collapse" in lines[1]

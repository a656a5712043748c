"""`overwatch audit`: exit codes, what counts, and what CI systems read."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from overwatch.analyse.audit import AuditConfig, audit, config_keys, junit, skipped, unknown
from overwatch.analyse.run_history import RunHistory
from overwatch.journal import Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.otlp.jsonl import to_json
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.simulate.runs import overwatch


def test_a_run_with_critical_findings_fails(storm: Path, calm: Path) -> None:
    """Status 1; one without is status 0."""
    failed, ok = overwatch("audit", storm), overwatch("audit", calm, "--fail-on", "warning")

    assert failed.exit_code == 1
    assert "thermal-throttle" in failed.stdout
    assert failed.stdout.startswith("FAILED: ")
    assert (ok.exit_code, ok.stdout.split(":")[0]) == (0, "ok")


def test_a_line_names_what_it_is_about_and_when(storm: Path, run_history: RunHistory) -> None:
    """The env, its lane, the time of the run and of the day, in text and in JUnit."""
    lines = overwatch("audit", storm).stdout.splitlines()[1:]
    junit_lines = overwatch("audit", storm, "--format", "junit").stdout
    counted = audit([run_history], AuditConfig()).counted

    assert {row.env is None for row in counted} == {True, False}
    for row, line in zip(counted, lines, strict=False):
        about = f"{row.gpu}" if row.env is None else f"env {row.env} {row.gpu}"
        stated = f"{row.kind} {about}: {row.text}"
        assert line.split()[:4] == ["critical", row.clock, row.time, "storm"]
        assert stated in line
        assert f"{row.time}  {row.clock}  critical  {stated}" in junit_lines


def test_what_is_ignored_or_allowed_does_not_fail(storm: Path, run_history: RunHistory) -> None:
    """By code, or by number; one fewer is too few."""
    counted = audit([run_history], AuditConfig()).counted
    codes = {row.kind for row in counted}
    ignored = [word for code in codes for word in ("--ignore", code)]

    assert overwatch("audit", storm / "snapshots.jsonl", *ignored).exit_code == 0
    assert overwatch("audit", storm / "snapshots.jsonl", "--max", str(len(counted))).exit_code == 0
    assert overwatch("audit", storm / "snapshots.jsonl", "--max", str(len(counted) - 1)).exit_code == 1


def test_json_states_what_counted_and_what_did_not(storm: Path) -> None:
    """And by which rules."""
    reported = json.loads(overwatch("audit", storm / "snapshots.jsonl", "--format", "json").stdout)

    assert (reported["ok"], reported["fail_on"], reported["max"], reported["runs"]) == (
        False,
        "critical",
        0,
        ["storm"],
    )
    assert {row["severity"] for row in reported["counted"]} == {"critical"}


def test_what_was_not_judged_is_named(tmp_path: Path) -> None:
    """A run that sends three names, two of them its own: which rules lacked what, and what is known."""
    events = [fakes.started(START_NS, preset="ppo")]
    events += [
        fakes.policy(START_NS + n * SECOND, index=n, value_loss=1.0, my_entropi=0.5, zzz=1.0)
        for n in range(1, 9)
    ]
    line = to_json(Signal.LOGS, request(fakes.records(events), origin_attributes(fakes.ORIGIN)))
    (tmp_path / "logs.jsonl").write_bytes(line + b"\n")
    run_history = read_history(tmp_path / "logs.jsonl")
    found = {rule.code: rule.needs for rule in skipped(run_history)}

    assert found["policy-kl-divergence"] == ("kl_divergence",)
    assert found["critic-failing"] == ("explained_variance",)
    assert found["policy-frozen"] == ("clip_fraction or kl_divergence",)
    assert "critic-diverged" not in found
    assert unknown(run_history)["zzz"] is None
    shown = overwatch("audit", tmp_path / "logs.jsonl").stdout
    assert "policy-kl-divergence needs kl_divergence" in shown
    assert "zzz: shown, never judged" in shown


def test_a_fix_names_the_settings_of_the_run() -> None:
    """As its library calls them, with their values."""
    config = {"lr": "0.1", "update_epochs": "4", "seed": "1"}

    assert config_keys("lower the learning rate or the number of epochs", config) == (
        "lr = 0.1",
        "update_epochs = 4",
    )
    assert config_keys("look at the batch", config) == ()


def test_junit_has_a_case_for_each_kind_of_finding(storm: Path, tmp_path: Path) -> None:
    """Failures hold the message, the next step and what it means; the numbers add up."""
    out = tmp_path / "audit.xml"
    overwatch("audit", storm / "snapshots.jsonl", "--format", "junit", "-o", out)
    root = ET.parse(out).getroot()  # noqa: S314 our own
    (suite,) = root
    failed = {case.get("name"): case.find("failure") for case in suite if case.find("failure") is not None}

    assert int(suite.get("tests", 0)) == len(suite) > len(failed)
    assert int(root.get("failures", 0)) == int(suite.get("failures", 0)) == len(failed)
    throttle = failed["thermal-throttle"]
    assert throttle is not None
    assert "do: " in str(throttle.text)
    assert throttle.get("type") == "critical"


def test_junit_holds_any_text(run_history: RunHistory) -> None:
    """Controls and markup of telemetry do not break it."""
    reported = audit([run_history], AuditConfig())
    hostile = msgspec.structs.replace(reported.counted[0], text="<b>&\x00\x1b[2J]]>\ud800")
    root = ET.fromstring(junit(replace(reported, counted=(hostile,))))  # noqa: S314 our own

    failure = root.find(".//failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("<b>&")


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("--fail-on", "bad"), "'bad' is not one of"),
        (("--max", "-1"), "-1"),
        (("--ignore", "thermal-throtle"), "did you mean thermal-throttle?"),
        (("--run", "nope"), "it holds storm"),
    ],
)
def test_bad_input_is_status_2(storm: Path, words: tuple[str, ...], stated: str) -> None:
    """Never that of a run that failed."""
    result = overwatch("audit", storm / "snapshots.jsonl", *words)

    assert result.exit_code == 2
    assert stated in result.stderr


def test_a_path_that_is_no_recording_is_status_2(tmp_path: Path) -> None:
    """Not a pass."""
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 40)

    assert overwatch("audit", tmp_path).exit_code == 2
    assert overwatch("audit", tmp_path / "nope").exit_code == 2
    assert overwatch("audit", tmp_path / "garbage").exit_code == 2


def test_limits_that_make_no_sense_are_refused(calm: Path) -> None:
    """Naming the value."""
    for option, value in (("--fail-on", "info"), ("--max", "-1")):
        result = overwatch("audit", calm, option, value)
        assert (result.exit_code, value in result.stderr) == (2, True)

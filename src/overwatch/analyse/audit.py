"""Whether runs are good enough for a script to go on: findings counted against a level, as text, JSON, JUnit.

Owns what counts. A finding counts once, at the worst that it was, whether or not it cleared. Pure.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from overwatch.analyse.findings import SEVERITIES
from overwatch.analyse.judged import Skipped, skipped, unknown
from overwatch.analyse.rows import Row, rows
from overwatch.analyse.story import AnalyseError, Story
from overwatch.catalog.runbooks import RUNBOOKS, runbook

LEVELS = ("warning", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What a run must not have."""

    fail_on: str = "critical"
    """Findings that are at least so bad count."""
    most: int = 0
    """So many of them are allowed, over all runs."""
    ignored: tuple[str, ...] = ()
    """Codes that never count."""

    def __post_init__(self) -> None:
        if self.fail_on not in LEVELS:
            raise AnalyseError(f"fail_on is {self.fail_on!r}; use one of {', '.join(LEVELS)}")
        if self.most < 0:
            raise AnalyseError(f"most is {self.most}; use 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What was found."""

    config: AuditConfig
    runs: tuple[str, ...]
    counted: tuple[Row, ...]
    """Findings at or above the level, in order of time."""
    passed: tuple[Row, ...]
    """Those below it, or ignored."""
    skipped: Mapping[str, tuple[Skipped, ...]] = field(default_factory=dict)
    """By run: rules about its policy that had nothing to judge."""
    unknown: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """By run: names that no row knows, each with the nearest known one."""

    @property
    def ok(self) -> bool:
        """Whether there are no more than are allowed."""
        return len(self.counted) <= self.config.most


def audit(stories: Iterable[Story], config: AuditConfig) -> Audited:
    """Count the findings of some runs."""
    runs: list[str] = []
    counted: list[Row] = []
    passed: list[Row] = []
    lacking: dict[str, tuple[Skipped, ...]] = {}
    custom: dict[str, Mapping[str, str | None]] = {}
    level = SEVERITIES.index(config.fail_on)
    for story in stories:
        run_id = story.run.run_id
        runs.append(run_id)
        lacking[run_id], custom[run_id] = skipped(story), unknown(story)
        for row in rows(story, ("finding",)):
            counts = SEVERITIES.index(row.severity) >= level and row.kind not in config.ignored
            (counted if counts else passed).append(row)
    return Audited(
        config=config, runs=tuple(runs), counted=tuple(counted), passed=tuple(passed), skipped=lacking,
        unknown=custom,
    )  # fmt: skip


def junit(audited: Audited) -> str:
    """A test suite a run and a test case a kind of finding, as CI systems read it; ends without a newline."""
    root = ET.Element("testsuites", name="overwatch audit")
    failures = 0
    for run_id in audited.runs:
        bad = _by_code(row for row in audited.counted if row.run == run_id)
        fine = _by_code(row for row in audited.passed if row.run == run_id)
        codes = list(dict.fromkeys((*RUNBOOKS, *bad, *fine)))
        suite = ET.SubElement(
            root, "testsuite", name=run_id, tests=str(len(codes)), failures=str(len(bad)), errors="0"
        )
        failures += len(bad)
        for code in codes:
            case = ET.SubElement(suite, "testcase", classname=f"overwatch.{run_id}", name=code)
            if code in bad:
                _failure(case, bad[code])
    root.set("tests", str(sum(len(suite) for suite in root)))
    root.set("failures", str(failures))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def line(row: Row) -> str:
    """A finding with what it is about: `env-crashed env 6 gpu1: crashed at step 218, open at the end`."""
    return f"{row.kind}{f' {row.about}' if row.about else ''}: {row.text}{row.ending}"


def _by_code(found: Iterable[Row]) -> dict[str, list[Row]]:
    by_code: dict[str, list[Row]] = {}
    for row in found:
        by_code.setdefault(row.kind, []).append(row)
    return by_code


def _failure(case: ET.Element, found: list[Row]) -> None:
    first = found[0]
    failure = ET.SubElement(case, "failure", type=first.severity, message=_xml(first.text))
    lines = [f"{row.time}  {row.clock}  {row.severity}  {line(row)}" for row in found]
    book = runbook(first.kind)
    if first.hint:
        lines.append(f"next: {first.hint}")
    if book is not None:
        lines += [f"means: {book.means}", f"do: {book.act}"]
    failure.text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """Without what XML 1.0 cannot hold."""
    return "".join(one if one in "\n\t" or (0x20 <= ord(one) < 0xFFFE and not 0xD800 <= ord(one) < 0xE000)
                   else "\N{REPLACEMENT CHARACTER}" for one in text)  # fmt: skip


def as_json(audited: Audited) -> str:
    """One object, for other programs."""
    return msgspec.json.encode(
        {
            "ok": audited.ok,
            "fail_on": audited.config.fail_on,
            "max": audited.config.most,
            "ignored": audited.config.ignored,
            "runs": audited.runs,
            "counted": audited.counted,
            "others": audited.passed,
            "skipped": audited.skipped,
            "not_recognised": audited.unknown,
        }
    ).decode()


def as_text(audited: Audited) -> str:
    """Lines for a person; ends without a newline."""
    lines = [
        f"{row.severity:8}  {row.clock:>9}  {row.time}  {row.run}  {line(row)}" for row in audited.counted
    ]
    for run_id in audited.runs:
        lines += [
            f"skipped   {run_id}  {rule.code}: needs {', and '.join(rule.needs)}"
            for rule in audited.skipped[run_id]
        ]
        lines += [
            f"unknown   {run_id}  {name}: shown, never judged" + (f"; did you mean {near}?" if near else "")
            for name, near in audited.unknown[run_id].items()
        ]
    number = len(audited.counted)
    words = [f"{number} finding{'' if number == 1 else 's'} at {audited.config.fail_on} or worse"]
    words += [f"{audited.config.most} allowed"] if audited.config.most else []
    words += [f"{len(audited.passed)} that do not count"] if audited.passed else []
    lines.append(f"{'ok' if audited.ok else 'FAILED'}: {', '.join(words)}; in {', '.join(audited.runs)}")
    return "\n".join(lines)


FORMATS: Final = {"text": as_text, "json": as_json, "junit": junit}
"""How an audit is written."""

"""Whether runs are good enough for a script to go on: findings counted against a level, as text, JSON, JUnit.

Owns what counts, and what could be judged of a run's policy: rules that lacked a row, names that no row
knows, keys of a fix. A finding counts once, at the worst that it was, whether or not it cleared. A run of
which nothing shows how it ended, as files of a program do not, counts at any level: it may have
crashed. Pure.
"""

import difflib
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from overwatch.analyse.findings import SEVERITIES
from overwatch.analyse.rows import Row, moment, rows
from overwatch.analyse.run_history import RunHistory
from overwatch.catalog import ROWS, Scope
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    KL,
    LEARNING_RATE,
    RETURN,
    VALUE_LOSS,
)
from overwatch.catalog.policy import ROWS as PULSE
from overwatch.catalog.runbooks import RUNBOOKS, row_code, runbook

CUSTOM: Final = "overwatch.custom."
END_UNKNOWN: Final = "end-unknown"
"""Code under which a run counts that ended, well or not."""
NEEDS: Final[Mapping[str, tuple[frozenset[str], ...]]] = MappingProxyType(
    {
        code: tuple(frozenset(row.short for row in group) for group in groups)
        for code, groups in {
            "reward-collapse": ((RETURN,),),
            "policy-collapse": ((RETURN, KL, CLIP_FRACTION), (ENTROPY, KL, CLIP_FRACTION, GRAD_NORM)),
            "policy-frozen": (
                (KL, CLIP_FRACTION), (ENTROPY, EXPLAINED_VARIANCE, VALUE_LOSS, RETURN),
            ),
            "critic-diverged": ((VALUE_LOSS,),),
            "critic-failing": ((EXPLAINED_VARIANCE,), (VALUE_LOSS,)),
            "steps-too-large": ((KL,), (CLIP_FRACTION,)),
            "kl-spike": ((KL,),),
            "zero-gradients": ((GRAD_NORM,),),
            "gradient-spikes": ((GRAD_NORM,),),
            "learning-rate-zero": ((LEARNING_RATE,),),
            "converged": ((ENTROPY,), (RETURN,)),
        }.items()
    }
)  # fmt: skip
"""By code, groups of rows: the rule needs at least one row of each group."""
KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "learning rate": ("learning_rate", "lr", "actor_lr", "policy_lr", "optimizer_lr"),
        "epochs": ("n_epochs", "update_epochs", "num_epochs", "ppo_epochs", "num_ppo_epochs", "epochs"),
        "target_kl": ("target_kl", "desired_kl", "kl_target"),
        "entropy coefficient": ("ent_coef", "entropy_coef", "entropy_coeff", "ent_coeff"),
        "clip gradients": ("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad"),
        "scale of rewards": ("reward_scale", "norm_reward", "normalize_reward"),
    }
)
"""By words in a hint, the settings that it is about, as libraries call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A rule that had nothing to judge."""

    code: str
    needs: tuple[str, ...]
    """For each missing group the short names of its rows, joined by "or": one of them must be sent."""


def skipped(run_history: RunHistory) -> tuple[Skipped, ...]:
    """Rules about the policy that could not be applied, since a row never came."""
    sent = {name for name, curve in run_history.curves.policy.items() if len(curve)}
    sent |= {RETURN.short} if run_history.last.counters.get("episodes") else set()
    rows = [
        row
        for row in PULSE
        if any(s.warning or s.critical for s in row.limits_for(run_history.run.preset).sides)
    ]
    needs = {row_code(row): (frozenset({row.short}),) for row in rows} | dict(NEEDS)
    lacking = {code: [group for group in groups if not group & sent] for code, groups in needs.items()}
    return tuple(
        Skipped(code=code, needs=tuple(" or ".join(sorted(group)) for group in groups))
        for code, groups in lacking.items()
        if groups
    )


def unknown(run_history: RunHistory) -> dict[str, str | None]:
    """Names of the policy that no row knows, and so are shown and not judged, with the nearest known one."""
    known = [row.short for row in ROWS if row.scope is Scope.POLICY]
    custom = [
        name.removeprefix(CUSTOM) for name, curve in run_history.curves.policy.items() if curve.row is None
    ]
    return {name: next(iter(_near(name, known)), None) for name in custom}


def _near(name: str, known: list[str]) -> list[str]:
    last = name.rpartition("/")[2].lower()
    return [near for near in difflib.get_close_matches(last, known, 1, 0.75) if near != name]


def config_keys(hint: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of the run that a hint is about, with their values."""
    words = hint.lower()
    found: Iterable[str | None] = (
        next((name for name in names if name in config), None)
        for phrase, names in KEYS.items()
        if phrase in words or any(name in words for name in names if "_" in name)
    )
    return tuple(f"{name} = {config[name]}" for name in found if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What a run must not have."""

    fail_on: str = "critical"
    """Findings that are at least so bad count."""
    most: int = 0
    """So many of them are allowed, over all runs."""
    ignored: tuple[str, ...] = ()
    """Codes that never count."""


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


def audit(histories: Iterable[RunHistory], config: AuditConfig) -> Audited:
    """Count the findings of some runs."""
    runs: list[str] = []
    counted: list[Row] = []
    passed: list[Row] = []
    lacking: dict[str, tuple[Skipped, ...]] = {}
    custom: dict[str, Mapping[str, str | None]] = {}
    level = SEVERITIES.index(config.fail_on)
    for run_history in histories:
        run_id = run_history.run.run_id
        runs.append(run_id)
        lacking[run_id], custom[run_id] = skipped(run_history), unknown(run_history)
        if run_history.run.outcome == "ended":
            (passed if END_UNKNOWN in config.ignored else counted).append(_end_unknown(run_history))
        for row in rows(run_history, ("finding",)):
            counts = SEVERITIES.index(row.severity) >= level and row.kind not in config.ignored
            (counted if counts else passed).append(row)
    return Audited(
        config=config, runs=tuple(runs), counted=tuple(counted), passed=tuple(passed), skipped=lacking,
        unknown=custom,
    )  # fmt: skip


def _end_unknown(run_history: RunHistory) -> Row:
    because = f": {run_history.run.reason}" if run_history.run.reason else ""
    return Row(
        run=run_history.run.run_id, what="finding", at=run_history.length,
        time=moment(run_history, run_history.length), severity="warning", kind=END_UNKNOWN,
        text=f"how it ended is not known{because}", hint=f"--ignore {END_UNKNOWN} where it ended well",
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
    """Lines for a person, the verdict first; ends without a newline."""
    lines = [
        _verdict(audited),
        *(f"{row.severity:8}  {row.clock:>9}  {row.time}  {row.run}  {line(row)}" for row in audited.counted),
    ]
    for run_id in audited.runs:
        if rules := audited.skipped[run_id]:
            needs = "; ".join(f"{rule.code} needs {', and '.join(rule.needs)}" for rule in rules)
            lines.append(f"skipped   {run_id}  {len(rules)} rules: {needs}")
        lines += [
            f"unknown   {run_id}  {name}: shown, never judged" + (f"; did you mean {near}?" if near else "")
            for name, near in audited.unknown[run_id].items()
        ]
    return "\n".join(lines)


def _verdict(audited: Audited) -> str:
    """`FAILED: 2 findings at critical or worse, in bad-1; runs checked: ok-1, bad-1`."""
    findings = [row for row in audited.counted if row.kind != END_UNKNOWN]
    number, unknown = len(findings), len(audited.counted) - len(findings)
    words = [f"{number} finding{'' if number == 1 else 's'} at {audited.config.fail_on} or worse"]
    if findings:
        words[0] += f" in {', '.join(dict.fromkeys(row.run for row in findings))}"
    words += [f"{unknown} of unknown end (--ignore {END_UNKNOWN} lets it pass)"] if unknown else []
    words += [f"{audited.config.most} allowed"] if audited.config.most else []
    words += [f"{len(audited.passed)} that do not count"] if audited.passed else []
    return f"{'ok' if audited.ok else 'FAILED'}: {', '.join(words)}; runs checked: {', '.join(audited.runs)}"


FORMATS: Final = {"text": as_text, "json": as_json, "junit": junit}
"""How an audit is written."""

"""`diagnosis` of the configuration: read, refused with clear words, kept in recordings, used by the fold."""

from pathlib import Path

import msgspec
import pytest

from overwatch.config import ConfigError, as_yaml, load
from overwatch.diagnose.judging import DiagnosisConfig, RuleConfig
from overwatch.fold import Fold, LifeStarted, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

RULE = "{name: kl-high, where: policy.kl_divergence > 0.2, for: 1 updates, hint: lower it}"
TEXT = f"diagnosis:\n  anomaly: {{weights: {{silent: 0}}, slow_step: 6}}\n  rules: [{RULE}]\n"


def _written(folder: Path, text: str) -> Path:
    path = folder / "overwatch.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_limits_weights_and_rules_are_read(tmp_path: Path) -> None:
    """What is not written keeps its default; the printed configuration reads as itself."""
    config = load(_written(tmp_path, TEXT), ())

    assert config.diagnosis.anomaly.weights.silent == 0.0
    assert config.diagnosis.anomaly.slow_step == 6.0
    assert config.diagnosis.anomaly.silent_s == 5.0
    assert config.diagnosis.rules == (
        RuleConfig(name="kl-high", where="policy.kl_divergence > 0.2", hold="1 updates", hint="lower it"),
    )
    assert load(_written(tmp_path, as_yaml(config)), ()).diagnosis == config.diagnosis
    assert load(None, ()).diagnosis == DiagnosisConfig()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("silent", "silnt", "diagnosis.anomaly.weights.silnt: unknown key; did you mean 'silent'?"),
        ("where", "wher", "diagnosis.rules[0].wher: unknown key; did you mean 'where'?"),
        ("kl_divergence", "klx", "diagnosis.rules[0]: rule kl-high: where names policy.klx, which no row"),
        ("1 updates", "soon", "for is 'soon'; write e.g. 30s, 5 min or 3 updates"),
        ("slow_step: 6", "slow_step: 0", "diagnosis.anomaly: slow_step is 0.0; it must be above 0"),
        (RULE, f"{RULE}, {RULE}", "diagnosis: two rules are named 'kl-high'"),
    ],
)
def test_what_cannot_work_is_refused_with_path_value_and_fix(
    tmp_path: Path, before: str, after: str, words: str
) -> None:
    """Before the collector opens a door."""
    with pytest.raises(ConfigError) as refused:
        load(_written(tmp_path, TEXT.replace(before, after)), ())

    assert words in str(refused.value)


def _life(diagnosis: DiagnosisConfig | None) -> Batch:
    life = LifeStarted(version="1", pid=1, config_digest="d", diagnosis=diagnosis)
    return Batch(sequence=0, stamp=START_NS, signal=Signal.START, body=msgspec.json.encode(life))


def _updates() -> Batch:
    reported = [fakes.policy(START_NS + 1 + i, index=i + 1, kl_divergence=0.3) for i in range(3)]
    body = request(fakes.records(list(reported)), origin_attributes(ORIGIN))
    return Batch(sequence=1, stamp=START_NS + 1, signal=Signal.LOGS, body=body)


def _codes(snapshot: Snapshot) -> set[str]:
    return {finding.code for finding in snapshot.findings if finding.code.startswith("rule-")}


def test_a_life_is_judged_as_its_start_record_states() -> None:
    """So a replay finds what was found live; a life without rules of its own ends those of the one before."""
    rules = (RuleConfig(name="kl-high", where="policy.kl_divergence > 0.2", hold="1 updates", hint="lower"),)
    diagnosis, tick, view = DiagnosisConfig(rules=rules), next_tick(START_NS + 2), View()
    fold = Fold()
    frame = fold.advance(tick, [_life(diagnosis), _updates()], ())
    again = Fold.load(fold.dump())

    assert _codes(frame.snapshots["run-1", view]) == {"rule-kl-high"}
    later = again.advance(tick + SECOND, [], ()).snapshots["run-1", view]
    assert _codes(later) == {"rule-kl-high"}
    assert later == fold.advance(tick + SECOND, [], ()).snapshots["run-1", view]
    plain = Fold().advance(tick, [_life(None), _updates()], ()).snapshots["run-1", view]
    assert _codes(plain) == set()

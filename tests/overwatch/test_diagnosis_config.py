"""`diagnosis` of the configuration: read, refused with clear words, kept in recordings, used by the fold."""

from pathlib import Path

import msgspec
import pytest

from overwatch.config import ConfigError, as_yaml, load
from overwatch.diagnose.factor import AnomalyLimits, Weights
from overwatch.diagnose.judging import DiagnosisConfig
from overwatch.fold import Fold, LifeStarted, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

TEXT = "diagnosis:\n  anomaly: {weights: {silent: 0}, slow_step: 6}\n"


def _written(folder: Path, text: str) -> Path:
    path = folder / "overwatch.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_limits_and_weights_are_read(tmp_path: Path) -> None:
    """What is not written keeps its default; the printed configuration reads as itself."""
    config = load(_written(tmp_path, TEXT), ())

    assert config.diagnosis.anomaly.weights.silent == 0.0
    assert config.diagnosis.anomaly.slow_step == 6.0
    assert config.diagnosis.anomaly.silent_s == 5.0
    assert load(_written(tmp_path, as_yaml(config)), ()).diagnosis == config.diagnosis
    assert load(None, ()).diagnosis == DiagnosisConfig()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("silent", "silnt", "diagnosis.anomaly.weights.silnt: unknown key; did you mean 'silent'?"),
        ("slow_step: 6", "slow_step: 0", "diagnosis.anomaly: slow_step is 0.0; it must be above 0"),
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


def _envs() -> Batch:
    reported = [fakes.envs(START_NS + 1 + i, range(16), index=i + 1, step_time=STEPS) for i in range(9)]
    body = request(fakes.records(list(reported)), origin_attributes(ORIGIN))
    return Batch(sequence=1, stamp=START_NS + 1, signal=Signal.LOGS, body=body)


STEPS = [0.01 + 0.0001 * env for env in range(15)] + [0.5]


def _status(snapshot: Snapshot) -> set[str]:
    return {env.status for env in snapshot.envs if env.env_id == 15}


def test_a_life_is_judged_as_its_start_record_states() -> None:
    """So a replay finds what was found live; a life without any ends those before."""
    limits = AnomalyLimits(weights=Weights(slow_step=0.0))
    diagnosis, tick, view = DiagnosisConfig(anomaly=limits), next_tick(START_NS + 2), View()
    fold = Fold()
    frame = fold.advance(tick, [_life(diagnosis), _envs()], ())
    again = Fold.load(fold.dump())

    assert _status(frame.snapshots["run-1", view]) == {"ok"}
    later = again.advance(tick + SECOND, [], ()).snapshots["run-1", view]
    assert _status(later) == {"ok"}
    assert later == fold.advance(tick + SECOND, [], ()).snapshots["run-1", view]
    plain = Fold().advance(tick, [_life(None), _envs()], ()).snapshots["run-1", view]
    assert _status(plain) == {"stalled"}

"""What is remembered of a run: findings over their lives, bounds, envs, seeds, configuration."""

import itertools
from pathlib import Path

import pytest

from overwatch.analyse.run_history import AnalyseError, RunHistory, open_recorded, seconds_of
from tests.overwatch.analyse.reading import read_history


def test_a_finding_lives_from_when_it_was_true_to_when_it_was_seen_last(run_history: RunHistory) -> None:
    """With its worst severity and the update at which it was seen."""
    throttle = next(found for found in run_history.findings if found.finding.code == "thermal-throttle")

    assert 8 < throttle.since < 20
    assert throttle.since <= throttle.seen <= throttle.until <= run_history.length
    assert throttle.severity == "critical"
    assert throttle.update is not None


def test_bounds_are_stretches_without_gaps(run_history: RunHistory) -> None:
    """One lane was compute-bound, then throttled."""
    intervals = run_history.bounds["gpu1"]

    assert [intervals[0].word, intervals[-1].word] == ["COMPUTE-BOUND", "THROTTLED"]
    assert all(before.end == after.start for before, after in itertools.pairwise(intervals))
    assert sum(seconds_of(run_history.bounds["gpu1"]).values()) == pytest.approx(run_history.length, abs=2.5)


def test_crashed_envs_have_a_worst_moment(run_history: RunHistory) -> None:
    """And how long they were not OK."""
    crashed = [env for env in run_history.envs.values() if env.bad_s]

    assert crashed
    assert all(env.worst is not None and env.worst.anomaly.reasons for env in crashed)
    assert {spell.word for env in crashed for spell in env.statuses} >= {"ok", "crashed"}


def test_seeds_have_their_moves(run_history: RunHistory) -> None:
    """In order of time, each with the stage that was entered."""
    lives = [seed for seed in run_history.facts.seeds.values() if len(seed.moves) > 2]

    assert lives
    for seed in lives:
        times = [move.time for move in seed.moves]
        assert times == sorted(times)


def test_the_configuration_holds_what_the_run_reported(run_history: RunHistory) -> None:
    """Its own settings beside what is known of every run."""
    assert run_history.config["seed"] == "3"
    assert run_history.config["algo"] == "ppo"
    assert run_history.config["n_envs"] == "8"


def test_a_log_of_snapshots_is_as_good_for_curves(storm: Path, run_history: RunHistory) -> None:
    """Without what only batches hold."""
    logged = read_history(storm / "snapshots.jsonl")

    assert _values(logged) == _values(run_history)
    assert logged.bounds == run_history.bounds
    assert [found.finding for found in logged.findings] == [found.finding for found in run_history.findings]


def _values(of: RunHistory) -> dict[str, tuple[list[float], list[float]]]:
    return {name: (list(curve.update), list(curve.value)) for name, curve in of.curves.policy.items()}


def test_a_log_of_snapshots_has_the_lines_of_its_feeds(storm: Path, run_history: RunHistory) -> None:
    """Each once, in order; a feed holds the newest hundred, so those of a burst are lost."""
    lines = [(line.time, line.message, line.env_id) for line in run_history.facts.lines]
    logged = [
        (line.time, line.message, line.env_id) for line in read_history(storm / "snapshots.jsonl").facts.lines
    ]

    assert logged == lines


def test_otlp_files_without_an_index_have_the_same_story(
    storm: Path, run_history: RunHistory, tmp_path: Path
) -> None:
    """As far as their own times show."""
    (tmp_path / "logs.jsonl").write_bytes((storm / "otlp" / "logs.jsonl").read_bytes())
    loose = read_history(tmp_path / "logs.jsonl")

    assert loose.config == run_history.config
    assert loose.curves.policy["kl_divergence"].value == run_history.curves.policy["kl_divergence"].value
    assert {found.finding.code for found in loose.findings} == {
        found.finding.code for found in run_history.findings
    }


def test_lines_that_are_no_snapshots_are_counted(storm: Path, tmp_path: Path) -> None:
    """And the others are read."""
    lines = (storm / "snapshots.jsonl").read_bytes().splitlines()
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\r\n".join([lines[0], b"", b"{no", *lines[1:], lines[2][:100]]))

    recorded = open_recorded(log)

    assert len(list(recorded.recorded())) == len(lines)
    assert len(recorded.remarks()) == 2


def test_a_run_that_is_not_there_is_named_with_those_that_are(storm: Path) -> None:
    """So that the next attempt is right."""
    with pytest.raises(AnalyseError, match="holds no run nope; it holds storm"):
        read_history(storm, "nope")


def test_a_path_that_is_no_recording_is_named(tmp_path: Path) -> None:
    """A folder without an index, a file that is not there, a file without snapshots."""
    (tmp_path / "empty").touch()
    for path in (tmp_path, tmp_path / "nope", tmp_path / "empty"):
        with pytest.raises(AnalyseError, match=str(path)):
            read_history(path)

"""What is remembered of a run: findings over their lives, bounds, envs, seeds, configuration."""

import itertools
from pathlib import Path

import pytest

from overwatch.analyse.story import AnalyseError, Story, open_recorded, seconds_of
from tests.overwatch.analyse.reading import read_story


def test_a_finding_lives_from_when_it_was_true_to_when_it_was_seen_last(story: Story) -> None:
    """With its worst severity and the update at which it was seen."""
    throttle = next(found for found in story.findings if found.finding.code == "thermal-throttle")

    assert 8 < throttle.since < 20
    assert throttle.since <= throttle.seen <= throttle.until <= story.length
    assert throttle.severity == "critical"
    assert throttle.update is not None


def test_bounds_are_stretches_without_gaps(story: Story) -> None:
    """One lane was compute-bound, then throttled."""
    spells = story.bounds["gpu1"]

    assert [spells[0].word, spells[-1].word] == ["COMPUTE-BOUND", "THROTTLED"]
    assert all(before.end == after.start for before, after in itertools.pairwise(spells))
    assert sum(seconds_of(story.bounds["gpu1"]).values()) == pytest.approx(story.length, abs=2.5)


def test_crashed_envs_have_a_worst_moment(story: Story) -> None:
    """And how long they were not OK."""
    crashed = [env for env in story.envs.values() if env.bad_s]

    assert crashed
    assert all(env.worst is not None and env.worst.anomaly.reasons for env in crashed)
    assert {spell.word for env in crashed for spell in env.statuses} >= {"ok", "crashed"}


def test_seeds_have_their_moves(story: Story) -> None:
    """In order of time, each with the stage that was entered."""
    lives = [seed for seed in story.facts.seeds.values() if len(seed.moves) > 2]

    assert lives
    for seed in lives:
        times = [move.time for move in seed.moves]
        assert times == sorted(times)


def test_the_configuration_holds_what_the_run_said(story: Story) -> None:
    """Its own settings beside what is known of every run."""
    assert story.config["seed"] == "3"
    assert story.config["algo"] == "ppo"
    assert story.config["n_envs"] == "8"


def test_a_log_of_snapshots_is_as_good_for_curves(storm: Path, story: Story) -> None:
    """Without what only batches hold."""
    logged = read_story(storm / "snapshots.jsonl")

    assert logged.curves.policy == story.curves.policy
    assert logged.bounds == story.bounds
    assert [found.finding for found in logged.findings] == [found.finding for found in story.findings]


def test_a_log_of_snapshots_has_the_lines_of_its_feeds(storm: Path, story: Story) -> None:
    """Each once, in order; a feed holds the newest hundred, so those of a burst are lost."""
    lines = [(line.time, line.message, line.env_id) for line in story.facts.lines]
    logged = [
        (line.time, line.message, line.env_id) for line in read_story(storm / "snapshots.jsonl").facts.lines
    ]

    assert logged == lines


def test_otlp_files_without_an_index_have_the_same_story(storm: Path, story: Story, tmp_path: Path) -> None:
    """As far as their own times tell."""
    (tmp_path / "logs.jsonl").write_bytes((storm / "otlp" / "logs.jsonl").read_bytes())
    loose = read_story(tmp_path / "logs.jsonl")

    assert loose.config == story.config
    assert loose.curves.policy["kl_divergence"].value == story.curves.policy["kl_divergence"].value
    assert {found.finding.code for found in loose.findings} == {
        found.finding.code for found in story.findings
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
        read_story(storm, "nope")


def test_a_path_that_is_no_recording_is_named(tmp_path: Path) -> None:
    """A folder without an index, a file that is not there, a file without snapshots."""
    (tmp_path / "empty").touch()
    for path in (tmp_path, tmp_path / "nope", tmp_path / "empty"):
        with pytest.raises(AnalyseError, match=str(path)):
            read_story(path)

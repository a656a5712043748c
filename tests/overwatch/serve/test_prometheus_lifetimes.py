"""How long a run and its readings stay on the page of the runs."""

from overwatch.events import FindingAcknowledged
from overwatch.serve.prometheus import PageLimits
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run, host
from tests.overwatch.serve.pages import life, one

POLICY = "overwatch_policy_kl_divergence"
STATUS = "overwatch_run_status"
MOMENT = "overwatch_run_last_update_timestamp_seconds"


def test_policy_values_live_as_long_as_the_run() -> None:
    """No update for twenty minutes and the value is still there, as long as something of the run speaks."""
    frames = Frames()
    busy_run(frames)
    for _ in range(30):
        frames.report("run-1", [host(frames.now, cpu_utilization=0.5)])
        frame = frames.skip(400)

    assert frame.tick - fakes.START_NS > 1_150 * 1_000_000_000
    assert one(frame, POLICY) == 0.0421


def test_a_run_that_ended_leaves_its_end_for_a_while() -> None:
    """Its values go at once, state and counters after the expiration."""
    limits = PageLimits(expiration_s=10)
    frames = Frames()
    busy_run(frames)
    ended = frames.report("run-1", [fakes.finished(frames.now, "failed")])

    assert POLICY not in life(ended, limits)
    assert {STATUS, "overwatch_run_updates_total", "overwatch_run_info"} <= life(ended, limits)
    assert life(frames.skip(95), limits) != set()
    assert life(frames.skip(10), limits) == set()


def test_what_stood_at_the_end_is_on_the_page_as_long_as_the_end() -> None:
    """An alert on it fires, and does not stay for ever."""
    limits = PageLimits(expiration_s=10)
    frames = Frames()
    busy_run(frames)
    ended = frames.report("run-1", [fakes.finished(frames.now)])

    for frame in (ended, frames.skip(95)):
        assert one(frame, STATUS, state="completed") == 1
        assert one(frame, "overwatch_run_findings", code="non-finite") == 1
        assert one(frame, "overwatch_findings", severity="critical") >= 1
    assert life(frames.skip(10), limits) == set()


def test_a_killed_run_is_lost_on_the_page_at_once() -> None:
    """Its exporter saw the signal."""
    frames = Frames()
    busy_run(frames)
    lost = frames.report("run-1", [fakes.finished(frames.now, "lost")])

    assert one(lost, STATUS, state="lost") == 1
    assert POLICY not in life(lost)


def test_a_silent_run_keeps_its_state_for_its_alert() -> None:
    """Of a producer that promised no end: the state stays until it emits, is acknowledged, or is too old."""
    limits = PageLimits(lost_retention_s=400)
    frames = Frames()
    frames.report("run-1", [fakes.policy(frames.now, 1, kl_divergence=0.01)], ours=False)
    silent = frames.skip(1_900)

    assert one(silent, STATUS, state="silent") == 1
    assert one(silent, STATUS, state="lost") == 0
    assert {STATUS, MOMENT} <= life(silent, limits)
    assert POLICY not in life(silent, limits)
    assert life(frames.skip(2_200), limits) == set()


def test_a_lost_run_keeps_its_state_until_the_retention_is_over() -> None:
    """State and moments stay for an alert to stand on; values of a policy that may be dead do not."""
    limits = PageLimits(lost_retention_s=90)
    frames = Frames()
    busy_run(frames)
    lost = frames.skip(650)

    assert one(lost, STATUS, state="lost") == 1
    assert {STATUS, MOMENT, "overwatch_run_info"} <= life(lost, limits)
    assert POLICY not in life(lost, limits)
    assert life(frames.skip(260), limits) == set()


def test_a_lost_run_that_was_acknowledged_is_gone() -> None:
    """An operator who has seen it needs no alert."""
    frames = Frames()
    busy_run(frames)
    frame = frames.skip(650)
    (snapshot,) = frame.snapshots.values()
    (loss,) = (finding for finding in snapshot.findings if finding.code == "run-lost")
    seen = frames.report("run-1", [FindingAcknowledged(at=frames.now, finding=loss.id)])

    assert one(frame, STATUS, state="lost") == 1
    assert life(seen) == set()


def test_a_lost_run_that_speaks_again_is_whole() -> None:
    """A new attempt has all series of a living run."""
    frames = Frames()
    busy_run(frames)
    frames.skip(650)
    again = busy_run(frames)

    assert one(again, STATUS, state="lost") == 0
    assert one(again, POLICY) == 0.0421


def test_a_reading_that_nobody_renews_is_gone() -> None:
    """A machine whose sampler died has no numbers after the expiration, while its run goes on."""
    limits = PageLimits(expiration_s=10)
    frames = Frames()
    busy_run(frames)
    frames.skip(50)
    assert "hw_gpu_utilization_ratio" in life(frames.skip(1), limits)
    frames.skip(50)
    frame = frames.report("run-1", [fakes.policy(frames.now, 2, kl_divergence=0.01)])

    assert not {"hw_gpu_utilization_ratio", "system_cpu_utilization_ratio"} & life(frame, limits)
    assert POLICY in life(frame, limits)

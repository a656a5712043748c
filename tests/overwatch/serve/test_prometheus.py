"""The page of the runs: what is on it, what is not, and that the format's own checker has nothing to say."""

import math
import os
import shutil
import subprocess

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from overwatch.aggregator import Frame
from overwatch.catalog.bounds import BoundState
from overwatch.events import Column, EnvsRemoved
from overwatch.serve.exposition import Exposition, Source, accepts_gzip
from overwatch.serve.prometheus import families
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run, gpu

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


def page(frame: Frame | None, accept: str = "") -> str:
    """The page of a frame."""
    source = Source(families=lambda _: families(frame), version=lambda: frame)
    return Exposition(source).render(accept, compress=False).body.decode()


def samples(frame: Frame | None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain_text(page(frame))
        for sample in family.samples
    }


def one(frame: Frame, name: str, /, **labels: str) -> float | None:
    """The value of one series of `run-1`."""
    return samples(frame).get((name, tuple(sorted({"rl_run_id": "run-1", **labels}.items()))))


def test_the_run_is_on_the_page() -> None:
    """Policy, machine, fleet and counters of a run, under their documented names."""
    frame = busy_run(Frames())

    assert one(frame, "overwatch_policy_kl_divergence") == 0.0421
    assert one(frame, "overwatch_policy_status", metric="kl_divergence", level="critical") == 1
    assert one(frame, "overwatch_policy_status", metric="kl_divergence", level="ok") == 0
    assert one(frame, "hw_gpu_utilization_ratio", hw_id="cuda:0") == 0.93
    assert one(frame, "hw_temperature_celsius", hw_id="cuda:0", hw_type="gpu") == 71
    uncorrected = {"hw_type": "gpu", "error_type": "uncorrected"}
    assert one(frame, "hw_errors_total", hw_id="cuda:0", **uncorrected) == 2
    assert one(frame, "system_cpu_utilization_ratio") == 0.4
    assert one(frame, "system_memory_usage_bytes") == 2e9
    assert one(frame, "overwatch_run_non_finite_total") == 1
    assert one(frame, "overwatch_run_envs", status="crashed") == 1
    assert one(frame, "overwatch_run_slots", seed_stage="training") == 32
    assert one(frame, "overwatch_run_status", state="live") == 1
    assert one(frame, "overwatch_outlier_env", rank="1") == 3
    assert one(frame, "overwatch_policy_custom", name="my_own") == 7


def test_a_removed_env_has_no_series_at_the_next_tick() -> None:
    """Neither among the outliers nor in a count; without any env the fleet's series are gone."""
    frames = Frames()
    assert one(busy_run(frames), "overwatch_outlier_env", rank="1") == 3
    frame = frames.tell("run-1", [EnvsRemoved(at=frames.now, env_id=Column.of([3]))])

    ranks = {
        labels: value for (name, labels), value in samples(frame).items() if name == "overwatch_outlier_env"
    }
    assert 3 not in ranks.values()
    assert one(frame, "overwatch_run_envs", status="crashed") == 0
    assert one(frame, "overwatch_run_envs", status="ok") == 31
    assert one(frame, "overwatch_run_slots", seed_stage="training") == 31

    frame = frames.tell("run-1", [EnvsRemoved(at=frames.now, env_id=Column.of(range(32)))])
    names = {name for name, _ in samples(frame)}
    assert not names & {"overwatch_outlier_env", "overwatch_outlier_anomaly", "overwatch_run_envs"}


def test_a_lane_is_identified_by_its_uuid() -> None:
    """Series of one GPU join those of other exporters, whatever its trainer calls it."""
    frames = Frames()
    at = frames.now
    start = fakes.started(at, devices=("GPU-a",), lanes={"GPU-a": "cuda:0"})
    frame = frames.tell("run-1", [start, gpu(at, "GPU-a", utilization=0.5)])

    assert one(frame, "hw_gpu_utilization_ratio", hw_id="GPU-a") == 0.5


def test_the_outliers_are_ranked_over_all_lanes() -> None:
    """By score, whatever lane an env is on; the rows of a snapshot stand lane by lane."""
    frames = Frames()
    at = frames.now
    frame = frames.tell(
        "run-1",
        [
            fakes.started(at, n_envs=4),
            fakes.envs(at, range(4), 1, lane=["a", "a", "b", "b"], reward=[1.0] * 4),  # type: ignore[list-item]  # lanes are words
            fakes.crashed(at, 1),
            fakes.crashed(at, 2),
        ],
    )

    assert {one(frame, "overwatch_outlier_env", rank=rank) for rank in ("1", "2")} == {1, 2}
    assert one(frame, "overwatch_outlier_anomaly", rank="3") == 0


def test_counters_are_there_from_the_first_scrape() -> None:
    """A counter that an alert watches begins at 0, before anything happened."""
    frames = Frames()
    frame = frames.tell("run-1", [fakes.started(frames.now)])

    assert one(frame, "overwatch_run_non_finite_total") == 0
    assert one(frame, "overwatch_run_updates_total") == 0
    assert one(frame, "overwatch_env_crashes_total") == 0
    assert one(frame, "overwatch_findings", severity="critical") is not None


def test_what_is_absent_or_not_finite_has_no_number() -> None:
    """An absent value has no series; a NaN has none either, but its status is critical."""
    frames = Frames()
    frame = frames.tell("run-1", [fakes.started(frames.now), fakes.policy(frames.now, 1, entropy=math.nan)])

    assert one(frame, "overwatch_policy_kl_divergence") is None
    assert one(frame, "overwatch_policy_entropy_ratio") is None
    assert one(frame, "overwatch_policy_status", metric="entropy", level="critical") == 1
    assert not any(math.isnan(value) for value in samples(frame).values())


def test_exactly_one_state_of_a_run_is_true() -> None:
    """The states of a run are one 1 and otherwise 0, living and finished."""
    frames = Frames()
    living = busy_run(frames)
    over = frames.tell("run-1", [fakes.finished(frames.now, "failed")])

    for frame, state in ((living, "live"), (over, "failed")):
        states = {
            dict(labels)["state"]: value
            for (name, labels), value in samples(frame).items()
            if name == "overwatch_run_status"
        }
        assert {word for word, value in states.items() if value} == {state}


def test_each_series_names_its_run() -> None:
    """Two runs share families and differ by label."""
    frames = Frames()
    busy_run(frames, "run-1")
    frame = busy_run(frames, "run-2")

    found = samples(frame)
    assert found.pop(("overwatch_prometheus_series_dropped", ())) == 0
    assert all("rl_run_id" in dict(labels) for _, labels in found)
    ones = {key for key in found if dict(key[1])["rl_run_id"] == "run-1"}
    assert len(ones) * 2 == len(found)


def test_the_number_of_series_does_not_follow_the_envs() -> None:
    """Sixty-four times the envs add no series, and one lane stays below 400."""
    few, many = (len(samples(busy_run(Frames(), n_envs=n))) for n in (64, 4096))

    assert few == many < 400


def test_a_full_page_says_what_it_left_out() -> None:
    """Beyond the limit series are counted, and the run with the newest data is whole."""
    frames = Frames()
    busy_run(frames, "old")
    frames.skip(5)
    frame = busy_run(frames, "new")
    whole = [sample for family in families(frame) for sample in family.samples]
    per_run = (len(whole) - 1) // 2
    cut = [sample for family in families(frame, per_run + 3) for sample in family.samples]

    assert [sample.value for sample in cut if "rl_run_id" not in sample.labels] == [per_run - 3]
    assert sum(sample.labels.get("rl_run_id") == "new" for sample in cut) == per_run


def test_names_with_quotes_stay_one_label() -> None:
    """A run id with quotes, newlines and backslashes is escaped, not interpreted."""
    name = 'a"} 1\nx\\'
    frames = Frames()
    frame = frames.tell(name, [fakes.started(frames.now)])

    assert {dict(labels).get("rl_run_id") for _, labels in samples(frame)} == {name, None}


def test_before_the_first_frame_the_page_is_empty() -> None:
    """No frame, no families; OpenMetrics still ends as it must."""
    assert (page(None), page(None, OPEN_METRICS)) == ("", "# EOF\n")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        (OPEN_METRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        (
            "application/vnd.google.protobuf;q=0.9,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
    ],
)  # fmt: skip
def test_negotiation(accept: str, content_type: str) -> None:
    """The answer names its format, and the format's parser reads it."""
    frame = busy_run(Frames())
    source = Source(families=lambda _: families(frame), version=lambda: frame)
    answer = Exposition(source).render(accept, compress=False)

    assert answer.content_type == content_type
    text = answer.body.decode()
    read = open_metrics if content_type.startswith("application") else plain_text
    assert text.endswith("# EOF\n") == (read is open_metrics)
    assert sum(len(family.samples) for family in read(text)) == len(samples(frame))


def test_a_page_is_made_once_a_state() -> None:
    """The families of one state are made once, whatever the number and kinds of scrapes."""
    made = []
    states = [object()]

    def count(state: object) -> list[Metric]:
        made.append(state)
        return []

    exposition = Exposition(Source(families=count, version=lambda: states[-1]))
    for accept in ("", OPEN_METRICS, ""):
        exposition.render(accept, compress=True)
    states.append(object())
    exposition.render("", compress=True)

    assert made == states


@pytest.mark.parametrize(
    ("header", "expected"),
    [("", False), ("gzip", True), ("br, GZIP;q=0.1", True), ("gzip; q=0", False), ("identity", False)],
)
def test_accepting_gzip(header: str, *, expected: bool) -> None:
    """A weight of 0 refuses."""
    assert accepts_gzip(header) is expected


def test_promtool_has_nothing_to_say() -> None:
    """The real linter finds nothing on the page of a busy run."""
    if shutil.which("promtool") is None:
        message = "promtool is not installed; apt-get install prometheus"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(message)
        pytest.skip(message)
    text = page(busy_run(Frames()))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_idle_gpu_seconds_are_counted_by_bound_from_the_first_scrape() -> None:
    """Every bound has a series at 0 before anything rested; then the one that holds grows."""
    frames = Frames()
    first = frames.tell("run-1", [fakes.started(frames.now)])
    names = {state.label for state in BoundState}

    assert {bound: one(first, "overwatch_run_gpu_idle_seconds_total", bound=bound) for bound in names} == (
        dict.fromkeys(names, 0.0)
    )

    for _ in range(30):
        frame = frames.tell("run-1", [gpu(frames.now, "cuda:0", utilization=0.0)])
    assert one(frame, "overwatch_run_gpu_idle_seconds_total", bound="idle") == pytest.approx(2.9)
    assert one(frame, "overwatch_run_gpu_idle_seconds_total", bound="io") == 0.0

"""The page of the runs: what is on it, what is not, and that the format's own checker reports nothing."""

import math
import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from overwatch.aggregator import Frame
from overwatch.catalog import Scope
from overwatch.catalog.alerts import reported_codes
from overwatch.catalog.bounds import BoundState
from overwatch.collector.exporters.prometheus import PrometheusConfig
from overwatch.events import (
    Column,
    EarlyStopped,
    EnvsRemoved,
    FindingAcknowledged,
    Measured,
    PhaseEnded,
    scalars,
)
from overwatch.serve.prometheus import PageLimits, RunPage
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run, gpu
from tests.overwatch.serve.pages import ABOUT, OPEN_METRICS, life, one, page, read, samples
from tests.real.servers import need


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
    assert one(frame, "system_memory_usage_bytes", system_memory_state="used") == 2e9
    assert one(frame, "overwatch_run_non_finite_total") == 1
    assert one(frame, "overwatch_run_envs", status="crashed") == 1
    assert one(frame, "overwatch_run_slots", seed_stage="training") == 32
    assert one(frame, "overwatch_run_status", state="live") == 1
    assert one(frame, "overwatch_outlier_env", rank="1") == 3
    assert one(frame, "overwatch_policy_custom", name="my_own") == 7


@pytest.mark.parametrize(("dirty", "label"), [(True, "true"), (False, "false"), (None, "")])
def test_whether_the_revision_was_changed_is_on_run_info(*, dirty: bool | None, label: str) -> None:
    """Empty where the producer did not send it: unknown is not clean."""
    frames = Frames()
    frame = frames.report("run-1", [fakes.started(frames.now, git_sha="4f2a91c", dirty=dirty)])
    found = [dict(labels) for name, labels in samples(frame) if name == "overwatch_run_info"]

    assert [(one["vcs_ref_head_revision"], one["dirty"]) for one in found] == [("4f2a91c", label)]


def test_a_removed_env_has_no_series_at_the_next_tick() -> None:
    """Neither among the outliers nor in a count; without any env the fleet's series are gone."""
    frames = Frames()
    assert one(busy_run(frames), "overwatch_outlier_env", rank="1") == 3
    frame = frames.report("run-1", [EnvsRemoved(at=frames.now, env_id=Column.of([3]))])

    ranks = {
        labels: value for (name, labels), value in samples(frame).items() if name == "overwatch_outlier_env"
    }
    assert 3 not in ranks.values()
    assert one(frame, "overwatch_run_envs", status="crashed") == 0
    assert one(frame, "overwatch_run_envs", status="ok") == 31
    assert one(frame, "overwatch_run_slots", seed_stage="training") == 31

    frame = frames.report("run-1", [EnvsRemoved(at=frames.now, env_id=Column.of(range(32)))])
    names = {name for name, _ in samples(frame)}
    assert not names & {"overwatch_outlier_env", "overwatch_outlier_anomaly", "overwatch_run_envs"}


def test_a_lane_is_identified_by_its_uuid() -> None:
    """Series of one GPU join those of other exporters, whatever its trainer calls it."""
    frames = Frames()
    at = frames.now
    start = fakes.started(at, devices=("GPU-a",), lanes={"GPU-a": "cuda:0"})
    frame = frames.report("run-1", [start, gpu(at, "GPU-a", utilization=0.5)])

    assert one(frame, "hw_gpu_utilization_ratio", hw_id="GPU-a") == 0.5


def test_a_number_of_the_runs_own_is_no_row_however_it_is_called() -> None:
    """What a library's table leaves out may be another's name for a row, or a row's own."""
    frames = Frames()
    own = {"train/grad_norm": 3.0, "grad_norm": 4.0, "entropy": 1.4}
    values = scalars({f"overwatch.custom.{name}": value for name, value in own.items()})
    event = Measured(at=frames.now, scope=Scope.POLICY, values=values, index=1)
    frame = frames.report("run-1", [fakes.started(frames.now), event])

    assert one(frame, "overwatch_policy_custom", name="train/grad_norm") == 3.0
    assert one(frame, "overwatch_policy_custom", name="overwatch.custom.grad_norm") == 4.0
    assert one(frame, "overwatch_policy_custom", name="overwatch.custom.entropy") == 1.4
    assert one(frame, "overwatch_policy_grad_norm") is None
    assert one(frame, "overwatch_policy_entropy_ratio") is None


def test_numbers_of_heads_have_series_of_their_own_beside_those_of_all_heads() -> None:
    """A label states which head: what judges a row never reads them."""
    frames = Frames()
    event = fakes.policy(frames.now, index=1, entropy=0.6, **{"entropy/op": 0.25, "clip_fraction/op": 0.5})
    frame = frames.report("run-1", [fakes.started(frames.now), event])

    assert one(frame, "overwatch_policy_head", metric="entropy", head="op") == 0.25
    assert one(frame, "overwatch_policy_head", metric="clip_fraction", head="op") == 0.5
    assert one(frame, "overwatch_policy_custom", name="entropy/op") is None
    assert one(frame, "overwatch_policy_entropy_ratio") == 0.6
    assert one(frame, "overwatch_policy_entropy_ratio", head="op") is None


def test_dips_of_a_gpu_are_on_the_page_and_absent_where_they_are_not_known() -> None:
    """A share of 0 has no length; a GPU that nothing reads at that rate has neither."""
    frames = Frames()
    busy = gpu(frames.now, "GPU-a", utilization=0.9, dip_share=0.0)
    frame = frames.report("run-1", [busy, gpu(frames.now, "GPU-b", utilization=0.9)])
    share, length = "overwatch_gpu_dips_share_ratio", "overwatch_gpu_dips_length_seconds"

    assert [one(frame, share, hw_id=name) for name in ("GPU-a", "GPU-b")] == [0.0, None]
    assert one(frame, length, hw_id="GPU-a") is None
    rested = frames.report("run-1", [gpu(frames.now, "GPU-a", utilization=0.9, dip_share=0.1, dip_p95_s=0.4)])
    assert (one(rested, share, hw_id="GPU-a"), one(rested, length, hw_id="GPU-a")) == (0.1, 0.4)


def test_the_outliers_are_ranked_over_all_lanes() -> None:
    """By score, whatever lane an env is on; the rows of a snapshot stand lane by lane."""
    frames = Frames()
    at = frames.now
    frame = frames.report(
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
    frame = frames.report("run-1", [fakes.started(frames.now)])

    assert one(frame, "overwatch_run_non_finite_total") == 0
    assert one(frame, "overwatch_run_updates_total") == 0
    assert one(frame, "overwatch_env_crashes_total") == 0
    assert one(frame, "overwatch_findings", severity="critical") is not None


def test_what_is_absent_or_not_finite_has_no_number() -> None:
    """An absent value has no series; a NaN has none either, but its status is critical."""
    frames = Frames()
    frame = frames.report("run-1", [fakes.started(frames.now), fakes.policy(frames.now, 1, entropy=math.nan)])

    assert one(frame, "overwatch_policy_kl_divergence") is None
    assert one(frame, "overwatch_policy_entropy_ratio") is None
    assert one(frame, "overwatch_policy_status", metric="entropy", level="critical") == 1
    assert not any(math.isnan(value) for value in samples(frame).values())


def test_exactly_one_state_of_a_run_is_true() -> None:
    """The states of a run are one 1 and otherwise 0, living and finished."""
    frames = Frames()
    living = busy_run(frames)
    over = frames.report("run-1", [fakes.finished(frames.now, "failed")])

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
    for name in ABOUT:
        found.pop((name, ()))
    assert all("rl_run_id" in dict(labels) for _, labels in found)
    ones = {key for key in found if dict(key[1])["rl_run_id"] == "run-1"}
    assert len(ones) * 2 == len(found)


def test_the_number_of_series_does_not_follow_the_envs() -> None:
    """Sixty-four times the envs add no series, and one lane stays below 400."""
    few, many = (len(samples(busy_run(Frames(), n_envs=n))) for n in (64, 4096))

    assert few == many < 400


def test_a_full_page_states_what_it_left_out() -> None:
    """Beyond the limit series are counted, and the run with the newest data is whole."""
    frames = Frames()
    busy_run(frames, "old")
    frames.skip(5)
    frame = busy_run(frames, "new")
    per_run = (len(samples(frame)) - len(ABOUT)) // 2
    limits = PageLimits(most_series=per_run + 3)
    cut = read(frame, limits)

    assert {name: cut[name, ()] for name in ABOUT} == {
        "overwatch_prometheus_series": per_run + 3,
        "overwatch_prometheus_series_limit": per_run + 3,
        "overwatch_prometheus_series_dropped": per_run - 3,
        "overwatch_prometheus_dropped_series_total": per_run - 3,
    }
    assert sum(dict(labels).get("rl_run_id") == "new" for _, labels in cut) == per_run


def test_what_had_no_room_is_counted_over_pages() -> None:
    """Each page adds what it left out, so that an alert can watch the counter."""
    frames = Frames()
    made = RunPage(PageLimits(most_series=10))
    counts = []
    for frame in (busy_run(frames), frames.skip(1)):
        (counter,) = (one for one in made.families(frame) if one.name.endswith("dropped_series"))
        counts += [sample.value for sample in counter.samples]

    assert 0 < counts[0] * 2 <= counts[1]


def test_names_with_quotes_stay_one_label() -> None:
    """A run id with quotes, newlines and backslashes is escaped, not interpreted."""
    name = 'a"} 1\nx\\'
    frames = Frames()
    frame = frames.report(name, [fakes.started(frames.now)])

    assert {dict(labels).get("rl_run_id") for _, labels in samples(frame)} == {name, None}


def test_before_the_first_frame_the_page_is_empty() -> None:
    """No frame, no families; OpenMetrics still ends as it must."""
    assert (page(None), page(None, OPEN_METRICS)) == ("", "# EOF\n")


@pytest.mark.parametrize("accept", ["", "text/plain;version=1.0.0", OPEN_METRICS])
def test_every_format_has_the_same_samples(accept: str) -> None:
    """Each is read by the parser of its format."""
    frame = busy_run(Frames())
    text = page(frame, accept)
    read_as = open_metrics if accept == OPEN_METRICS else plain_text

    assert text.endswith("# EOF\n") == (read_as is open_metrics)
    assert sum(len(family.samples) for family in read_as(text)) == len(samples(frame))


def test_promtool_reports_nothing() -> None:
    """The real linter finds nothing on the page of a busy run."""
    need("promtool")
    text = page(busy_run(Frames()))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_idle_gpu_seconds_are_counted_by_bound_from_the_first_scrape() -> None:
    """Every bound has a series at 0 before anything rested; then the one that holds grows."""
    frames = Frames()
    first = frames.report("run-1", [fakes.started(frames.now)])
    names = {state.label for state in BoundState}

    assert {bound: one(first, "overwatch_run_gpu_idle_seconds_total", bound=bound) for bound in names} == (
        dict.fromkeys(names, 0.0)
    )

    for _ in range(30):
        frame = frames.report("run-1", [gpu(frames.now, "cuda:0", utilization=0.0)])
    assert one(frame, "overwatch_run_gpu_idle_seconds_total", bound="idle") == pytest.approx(2.9)
    assert one(frame, "overwatch_run_gpu_idle_seconds_total", bound="io") == 0.0


def test_a_lane_is_in_exactly_one_bound() -> None:
    """Every verdict has a series, and the one that holds is 1."""
    frames = Frames()
    frames.report("run-1", [fakes.started(frames.now)])
    for _ in range(30):
        frame = frames.report("run-1", [gpu(frames.now, "cuda:0", utilization=0.0)])
    found = {
        state.label: one(frame, "overwatch_gpu_bound", hw_id="cuda:0", bound=state.label)
        for state in BoundState
    }

    assert found == {state.label: float(state is BoundState.IDLE) for state in BoundState}


def phase_ended(at: int, duration_s: float, span: str | None = None) -> PhaseEnded:
    """An end of `update`, of a span that ends in these digits where it has one."""
    trace = None if span is None else span * 8
    return PhaseEnded(at=at, phase="update", duration_s=duration_s, trace_id=trace, span_id=span and span * 4)


def test_phases_are_a_histogram_that_names_spans() -> None:
    """Cumulated counts, their sum, and the newest span of each bucket, by OpenMetrics' own parser."""
    frames = Frames()
    frames.report("run-1", [fakes.started(frames.now)])
    at = frames.now
    ends = [(0.02, "aaaa"), (0.025, "bbbb"), (0.2, None), (0.2, "cccc"), (0.25, None), (999.0, None)]
    frame = frames.report("run-1", [phase_ended(at + n, *end) for n, end in enumerate(ends)])
    (family,) = (
        one
        for one in open_metrics(page(frame, OPEN_METRICS))
        if one.name == "overwatch_run_phase_duration_seconds"
    )
    reported = {(one.name.rpartition("_")[2], one.labels.get("le")): one for one in family.samples}

    assert family.type == "histogram"
    assert {one.labels["phase"] for one in family.samples} == {"update"}
    assert [reported["bucket", le].value for le in ("0.01", "0.03", "0.1", "0.3", "300.0", "+Inf")] == [
        0, 2, 2, 5, 5, 6,
    ]  # fmt: skip
    assert (reported["count", None].value, reported["sum", None].value) == (6, pytest.approx(999.695))
    found = {le: one.exemplar for (_, le), one in reported.items() if one.exemplar is not None}
    assert {le: (one.labels["trace_id"], one.labels["span_id"], one.value) for le, one in found.items()} == {
        "0.03": ("b" * 32, "b" * 16, 0.025),
        "0.3": ("c" * 32, "c" * 16, 0.2),
    }
    assert float(found["0.03"].timestamp) == (at + 1) / 1e9


def test_phases_have_bounded_room() -> None:
    """The eight that took most of the time, of all ranks; a histogram is on a page whole or not at all."""
    frames = Frames()
    at = frames.now
    ends = [PhaseEnded(at=at + n, phase=f"p{n}", duration_s=1.0 + n) for n in range(12)]
    frame = frames.report("run-1", [fakes.started(at), *ends])
    name = "overwatch_run_phase_duration_seconds"

    def shown(limits: PageLimits) -> list[str]:
        found = read(frame, limits)
        return sorted(dict(labels)["phase"] for one, labels in found if one == f"{name}_count")

    assert shown(PageLimits()) == sorted(f"p{n}" for n in range(4, 12))
    whole = len(samples(frame)) - len(ABOUT)
    for room in range(whole - 20, whole):
        found = read(frame, PageLimits(most_series=room))
        series = [labels for one, labels in found if one.startswith(name)]
        assert len(series) % 15 == 0
        assert (
            found["overwatch_prometheus_series", ()] + found["overwatch_prometheus_series_dropped", ()]
            == whole
        )


def test_updates_beyond_a_limit_are_counted_from_the_first_scrape() -> None:
    """KL's counters begin at 0; each update counts once, by the worst limit that it crossed."""
    frames = Frames()
    name, kl = "overwatch_policy_updates_beyond_limit_total", {"metric": "kl_divergence"}
    first = frames.report("run-1", [fakes.started(frames.now)])
    assert [one(first, name, **kl, level=level) for level in ("warning", "critical")] == [0, 0]

    for n, value in enumerate((0.01, 0.02, 0.04, 0.05), start=1):
        frame = frames.report("run-1", [fakes.policy(frames.now, n, kl_divergence=value)])

    assert [one(frame, name, **kl, level=level) for level in ("warning", "critical")] == [1, 2]


def test_a_breach_that_is_forgiven_does_not_turn_the_counter_back() -> None:
    """A counter that falls would look like a restart; an early stop answers a breach after it was scraped."""
    frames = Frames()
    frames.report("run-1", [fakes.started(frames.now, config={"target_kl": "0.02"})])
    made = RunPage()

    def counted(frame: Frame) -> float:
        (family,) = (
            one for one in made.families(frame) if one.name == "overwatch_policy_updates_beyond_limit"
        )
        return sum(sample.value for sample in family.samples)

    before = counted(frames.report("run-1", [fakes.policy(frames.now, 1, kl_divergence=0.03)]))
    stop = EarlyStopped(
        at=frames.now, update=1, epoch=2, kl_divergence=0.03, target=0.02, minibatches_skipped=1
    )
    frame = frames.report("run-1", [stop])
    (snapshot,) = frame.snapshots.values()

    assert (before, snapshot.policy["kl_divergence"].warnings) == (1, 0)
    assert counted(frame) == 1


def test_findings_are_counted_by_code_until_somebody_has_seen_them() -> None:
    """Each code that has an alert is there at 0; an acknowledged finding alerts no more."""
    frames = Frames()
    name = "overwatch_run_findings"
    first = frames.report("run-1", [fakes.started(frames.now)])
    assert all(one(first, name, code=code) == 0 for code in reported_codes())

    crashed = frames.report(
        "run-1", [fakes.envs(frames.now, [3], 1, reward=[1.0]), fakes.crashed(frames.now, 3)]
    )
    assert one(crashed, name, code="env-crashed") == 1
    (snapshot,) = crashed.snapshots.values()
    (finding,) = (found for found in snapshot.findings if found.code == "env-crashed")
    seen = frames.report("run-1", [FindingAcknowledged(at=frames.now, finding=finding.id)])
    assert one(seen, name, code="env-crashed") == 0


def test_a_finding_that_is_information_alone_raises_no_alert() -> None:
    """One update that moved the policy, and not far beyond its target: shown, counted as information."""
    frames = Frames()
    frames.report("run-1", [fakes.started(frames.now)])
    for number in range(1, 31):
        kl = 0.04 if number == 30 else 0.005 + number % 3 * 1e-4
        frame = frames.report("run-1", [fakes.policy(frames.now, number, kl_divergence=kl)])
    (snapshot,) = frame.snapshots.values()

    assert [(found.code, found.severity) for found in snapshot.findings] == [("kl-spike", "info")]
    assert one(frame, "overwatch_findings", severity="info") == 1
    assert one(frame, "overwatch_run_findings", code="kl-spike") == 0


def test_series_state_whose_they_are_where_that_is_known() -> None:
    """`job` and `instance` of the run's newest life are on every series, and on `target_info` once."""
    frames = Frames()
    frames.report("run-1", [fakes.started(frames.now)], service="rl/learner", epoch="a1")
    frame = frames.report("run-1", [fakes.policy(frames.now, 1)], service="rl/learner", epoch="a2")

    found = {key: value for key, value in samples(frame).items() if key[0] not in ABOUT}
    assert {dict(labels).get("job") for _, labels in found} == {"rl/learner"}
    assert {dict(labels).get("instance") for _, labels in found} == {"a2"}
    assert len([name for name, _ in found if name == "target_info"]) == 1


def test_single_envs_have_series_only_where_asked_for() -> None:
    """A small fleet by env, a large one by rank, so that their number is bounded and ids do not churn."""
    frames = Frames()
    frame = busy_run(frames, n_envs=32)
    by_env, by_rank = (read(frame, PageLimits(per_env=most)) for most in (32, 8))

    assert not {name for name in life(frame) if name.startswith("overwatch_env_re")}
    rewards = [dict(labels) for name, labels in by_env if name == "overwatch_env_reward"]
    assert {labels["overwatch_env_id"] for labels in rewards} == {str(n) for n in range(32)}
    ranked = [dict(labels) for name, labels in by_rank if name == "overwatch_outlier_reward"]
    assert {labels["rank"] for labels in ranked} == {str(rank) for rank in range(1, 9)}
    assert not [name for name, labels in by_rank if "overwatch_env_id" in dict(labels)]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"max_series": 0}, "max_series 0"),
        ({"per_env": 257}, "per_env 257"),
        ({"per_env": -1}, "per_env -1"),
    ],
)
def test_limits_that_cannot_be_are_refused(what: dict[str, int], words: str) -> None:
    """With the name and the value."""
    with pytest.raises(ValueError, match=words):
        PrometheusConfig(endpoint="127.0.0.1:0", **what)  # type: ignore[arg-type]  # values of one type, of several fields

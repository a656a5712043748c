"""Every bound rule speaks when it should, and abstains where its signals are missing."""

from collections.abc import Sequence

import msgspec
import pytest

from overwatch.catalog import Scope, find
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.anomaly import AnomalyLimits
from overwatch.diagnose.bounds import Bound, badness, judge, judge_run
from overwatch.diagnose.fleet import kind_of
from overwatch.diagnose.lane_signals import Cycle, MemoryTrend
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.machines import HOLD_NS, hold
from overwatch.events import Column, Event, Measured, PhaseEnded
from overwatch.state import RunState
from tests import fakes
from tests.fakes import SECOND, START_NS

GIB = 1 << 30
BUSY = {"util": 0.97, "power": 0.8, "memory": 0.5, "clock": 1.0}


def _cycle(**shares: float) -> Cycle:
    """A rank that spends these shares of its time in phases."""
    return Cycle(rank=0, shares=shares)


EXAMPLES: dict[str, tuple[LaneFacts, str, str]] = {
    "throttled": (
        LaneFacts(
            name="gpu1", age_s=0, clock_hz=1140e6, clock_max_hz=1980e6, throttle=("thermal",),
            **{**BUSY, "clock": 1140 / 1980},
        ),
        "THROTTLED!!",
        "thermal: 1140 of 1980 MHz; cool it",
    ),
    "oom_risk": (
        LaneFacts(
            name="gpu1", age_s=0, memory=0.9, util=0.9,
            trend=MemoryTrend(rate=GIB / 4, oom_s=32.0, confidence=0.8),
        ),
        "OOM-RISK!!",
        "memory full in about 32s at +0.25G/s",
    ),
    "straggler": (
        LaneFacts(name="gpu1", age_s=0, pace=1.92 / 1.37, step_s=1.92, **BUSY),
        "STRAGGLER!",
        "step 1.92s against 1.37s; the others wait",
    ),
    "sync_bound": (
        LaneFacts(
            name="gpu0", age_s=0, util=0.62, step_s=0.62, slowest="gpu1", slowest_s=1.0, pace=0.62, power=0.5
        ),
        "SYNC-BOUND!",
        "38% of each step waits for gpu1",
    ),
    "io_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.3, loader=0.0, loader_text="loader 0/8"),
        "IO-BOUND!",
        "loader 0/8, util 30%; it waits for data",
    ),
    "weights_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.5, cycle=_cycle(weights=0.2, update=0.3)),
        "WEIGHTS-BOUND!",
        "20% of each update brings weights to the actors, util 50%",
    ),
    "starved": (
        LaneFacts(name="gpu1", age_s=0, util=0.3, queue=0.05, queue_text="queue 1/20"),
        "STARVED!",
        "queue 1/20: learning is faster than collecting, util 30%",
    ),
    "compute_bound": (LaneFacts(name="gpu1", age_s=0, **BUSY), "COMPUTE-BOUND", "busy at full power"),
    "env_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.2, cycle=_cycle(env_wait=0.7, rollout=0.8)),
        "ENV-BOUND",
        "70% of the time waits for envs, util 20%",
    ),
    "inference_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.8, cycle=_cycle(inference=0.6, rollout=0.7)),
        "INFER-BOUND",
        "60% of the time chooses actions, util 80%",
    ),
    "learner_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.85, cycle=_cycle(update=0.6, advantage=0.05)),
        "LEARNER-BOUND",
        "65% of the time learns, util 85%",
    ),
    "sawtooth_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.5, saw="util swings 20% to 95% every 4.0s"),
        "SYNC-BOUND!",
        "util swings 20% to 95% every 4.0s; it waits in each",
    ),
    "memory_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.5, memory=0.94, power=0.5),
        "MEMORY-BOUND",
        "memory 94% full, util 50%",
    ),
    "host_bound": (
        LaneFacts(name="gpu1", age_s=0, util=0.95, power=0.25, memory=0.2),
        "HOST-BOUND",
        "util 95% at 25% of its power: small kernels",
    ),
    "idle": (LaneFacts(name="gpu1", age_s=0, util=0.0, power=0.1, memory=0.1), "idle", "nothing runs here"),
    "unknown": (
        LaneFacts(name="gpu1", age_s=0, util=0.97),
        "unknown?",
        "not received: power limit, memory",
    ),
}  # fmt: skip


def _bound(lane: LaneFacts) -> Bound:
    return judge([lane], AnomalyLimits())[lane.name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rule_speaks_with_its_reason(name: str) -> None:
    """State, mark and reason are reported, with evidence and a confidence."""
    lane, state, why = EXAMPLES[name]
    bound = _bound(lane)

    assert (bound.state + bound.mark, bound.why) == (state, why)
    assert 0 <= bound.confidence <= 1
    assert bound.evidence


def test_no_verdict_speaks_without_signals() -> None:
    """A lane that sends nothing is unknown, with what is missing."""
    bound = _bound(LaneFacts(name="gpu1", age_s=0))

    assert (bound.state, bound.why) == ("unknown", "not received: utilisation, power limit, memory")


@pytest.mark.parametrize(
    ("lane", "state"),
    [
        (LaneFacts(name="g", age_s=0, throttle=("power",), **BUSY), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, throttle=("idle", "clocks"), **BUSY), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, throttle=("power",), **{**BUSY, "clock": 0.7}), "THROTTLED"),
        (LaneFacts(name="g", age_s=0, **{**BUSY, "clock": 0.5}), "THROTTLED"),
        (LaneFacts(name="g", age_s=0, util=0.01, power=0.1, memory=0.1, clock=0.2), "idle"),
        (LaneFacts(name="g", age_s=0, pace=1.2, step_s=1.0, **BUSY), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, loader=0.0, **BUSY), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, **{**BUSY, "memory": 0.98}), "OOM-RISK"),
        (LaneFacts(name="g", age_s=0, cycle=_cycle(sync=0.3), **BUSY), "SYNC-BOUND"),
        (LaneFacts(name="g", age_s=0, throttle=(), clock_top=0.5, **{**BUSY, "clock": 0.5}), "THROTTLED"),
        (LaneFacts(name="g", age_s=0, throttle=(), clock_top=0.9, **{**BUSY, "clock": 0.5}), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, util=0.95, sm=0.7), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=0, util=0.4, core=0.99, power=0.2, memory=0.3), "HOST-BOUND"),
        (LaneFacts(name="g", age_s=0, util=0.4, core=0.5, power=0.2, memory=0.3), "unknown"),
        (LaneFacts(name="g", age_s=0, util=0.4, cycle=_cycle(checkpoint=0.2)), "IO-BOUND"),
        (LaneFacts(name="g", age_s=0, util=0.4, queue=0.95, queue_text="queue 19/20"), "LEARNER-BOUND"),
        (LaneFacts(name="g", age_s=9, fresh_s=30, **BUSY), "COMPUTE-BOUND"),
        (LaneFacts(name="g", age_s=9, throttle=("thermal",), **BUSY), "unknown"),
        (
            LaneFacts(
                name="g", age_s=0, util=0.97, power=0.8, memory=0.3,
                trend=MemoryTrend(rate=4.0 * GIB, oom_s=14.0, confidence=0.9),
            ),
            "COMPUTE-BOUND",
        ),
    ],
)  # fmt: skip
def test_what_is_everyday_is_no_fault(lane: LaneFacts, state: str) -> None:
    """A power cap that costs no clock, a start that fills memory, an idle GPU that clocks down."""
    assert _bound(lane).state == state


def test_the_run_waits_where_a_lane_waits() -> None:
    """The wait at the barrier is the run's bound; without one it is the worst lane's; without lanes none."""
    throttled, waiting, computing = (
        _bound(EXAMPLES[name][0]) for name in ("throttled", "sync_bound", "compute_bound")
    )
    run = judge_run({"gpu1": throttled, "gpu0": waiting})
    healthy = judge_run({"gpu0": computing, "gpu1": computing})

    assert run is not None
    assert (run.state, run.mark) == ("SYNC-BOUND", "!")
    assert healthy is not None
    assert (healthy.state, healthy.why) == ("COMPUTE-BOUND", "2 of 2 lanes")
    assert judge_run({}) is None


def test_a_verdict_changes_when_another_has_held() -> None:
    """Three seconds of the other one; a flicker back starts them again; the first is believed at once."""
    first, other = (_bound(EXAMPLES[name][0]) for name in ("compute_bound", "io_bound"))
    held = hold({}, {"g": first}, 0)
    assert held["g"].bound == first

    held = hold(held, {"g": other}, SECOND)
    held = hold(held, {"g": first}, 2 * SECOND)
    held = hold(held, {"g": other}, 3 * SECOND)
    assert hold(held, {"g": other}, 3 * SECOND + HOLD_NS - 1)["g"].bound == first
    assert hold(held, {"g": other}, 3 * SECOND + HOLD_NS)["g"].bound == other


def test_lanes_are_ordered_by_how_bad_they_are() -> None:
    """Critical, silent, warning, as it should be, unknown."""
    marks = ["throttled", "io_bound", "compute_bound", "unknown"]
    order = [badness(_bound(EXAMPLES[name][0])) for name in marks]
    silent = badness(_bound(LaneFacts(name="g", age_s=9)))

    assert order == sorted(order)
    assert order[0] < silent < order[1]


def lane_readings(
    at: int, lanes: Sequence[str], throttle: Sequence[str | None] = (), **columns: Sequence[float]
) -> Event:
    """Readings of some lanes by short name; `throttle` takes words."""
    values = {}
    for short, column in columns.items():
        row = find(short, Scope.GPU)
        assert row is not None
        values[row.name] = Column.of(column)
    if throttle:
        values["overwatch.gpu.throttle"] = Column.of_labels(list(throttle))
    return Measured(at=at, scope=Scope.GPU, keys={"gpu_id": Column.of_labels(list(lanes))}, values=values)


def _judged(state: RunState) -> Judged:
    return assess(state, Assessment(), state.last_stamp)


def test_readings_become_facts() -> None:
    """Flags, clocks, power and memory of two lanes on the wire are two verdicts."""
    reported = [
        lane_readings(
            START_NS + i * SECOND, ["gpu0", "gpu1"], throttle=[None, "thermal,power"],
            utilization=[0.96, 0.97], power_w=[600, 388], power_limit_w=[700, 700],
            clock_hz=[1980e6, 1140e6], clock_max_hz=[1980e6, 1980e6],
        )
        for i in range(4)
    ]  # fmt: skip
    judged = _judged(fakes.folded(reported))

    assert {name: bound.state for name, bound in judged.bounds.items()} == {
        "gpu0": "COMPUTE-BOUND", "gpu1": "THROTTLED",
    }  # fmt: skip


@pytest.mark.parametrize(("step", "state"), [(GIB / 2, "OOM-RISK"), (0.0, "unknown")])
def test_memory_that_rises_is_forecast(step: float, state: str) -> None:
    """Half a GiB a second from 70 of 80 GiB is full in seconds; memory that stays is nothing."""
    reported = [
        lane_readings(
            START_NS + i * SECOND, ["gpu0"], utilization=[0.7],
            memory_used_bytes=[70 * GIB + i * step], memory_total_bytes=[80 * GIB],
        )
        for i in range(10)
    ]  # fmt: skip

    assert _judged(fakes.folded(reported)).bounds["gpu0"].state == state


def test_phases_of_a_rank_speak_for_its_lane() -> None:
    """A rank that spends a third of its time at the barrier is sync-bound on the lane it steps on."""
    reported: list[Event] = [
        fakes.envs(START_NS, [0, 1], step_time=[0.01, 0.01], lane=["gpu0", "gpu0"]),  # type: ignore[list-item]  # lanes are words
        lane_readings(START_NS + 4 * SECOND, ["gpu0"], utilization=[0.6]),
    ]
    reported += [
        PhaseEnded(at=START_NS + int((1.2 * i + ends) * SECOND), phase=phase, duration_s=seconds)
        for i in range(4)
        for phase, seconds, ends in (("collect", 0.8, 0.8), ("sync", 0.4, 1.2))
    ]
    bound = _judged(fakes.folded(reported)).bounds["gpu0"]

    assert (bound.state, bound.why) == ("SYNC-BOUND", "33% of each step waits for the others")


def test_lanes_of_another_kind_are_not_compared() -> None:
    """A CPU lane that steps slowly is no straggler of the GPUs."""
    reported: list[Event] = [
        fakes.envs(START_NS, [0, 1], step_time=[0.01, 0.5], lane=["cuda:0", "cpu"]),  # type: ignore[list-item]  # lanes are words
        lane_readings(START_NS, ["cuda:0", "cpu"], utilization=[0.5, 0.5]),
    ]

    assert {bound.state for bound in _judged(fakes.folded(reported)).bounds.values()} == {"unknown"}


def test_lanes_of_all_nodes_are_of_one_kind() -> None:
    """GPUs that do the same work are compared, whatever their node or number; the processor is not."""
    gpus = ("cuda:0", "cuda:7", "cuda:0@node-2", "cuda:0@node-2#3")

    assert {kind_of(name) for name in gpus} == {"cuda:"}
    assert kind_of("cpu") != kind_of("cuda:0")


def _rank_of(**seconds: float) -> Judged:
    """Half a minute of one rank without lanes: so much of each second in each phase."""
    reported: list[Event] = []
    for turn in range(30):
        at = START_NS + (turn + 1) * SECOND
        reported += [PhaseEnded(at=at, phase=phase, duration_s=s) for phase, s in seconds.items()]
    state = fakes.folded(reported)
    return assess(state, Assessment(), state.last_stamp)


@pytest.mark.parametrize(
    ("seconds", "state", "why"),
    [
        ({"collect": 0.9, "env_wait": 0.7, "inference": 0.1}, "ENV-BOUND", "70% of the time waits for envs"),
        ({"collect": 0.9, "env_wait": 0.2, "inference": 0.6}, "INFER-BOUND", "60% of the time"),
        ({"collect": 0.2, "estimate": 0.1, "update": 0.7}, "LEARNER-BOUND", "80% of the time learns"),
        ({"collect": 0.9, "update": 0.1}, "unknown", "not reported: env_wait, inference"),
        ({"rollout": 0.9, "env_wait": 0.3, "update": 0.1}, "unknown", "not reported: inference"),
        ({"collect": 0.5, "env_wait": 0.3, "inference": 0.2, "train": 0.5}, "unknown", "no phase takes most"),
    ],
)
def test_a_run_without_lanes_is_judged_by_its_phases(seconds: dict[str, float], state: str, why: str) -> None:
    """A trainer on processors alone has a verdict, or the reason why there is none."""
    judged = _rank_of(**seconds)

    assert judged.bound is not None
    assert judged.bound.state == state
    assert why in judged.bound.why
    assert judged.assessment.findings == {}


def test_a_run_whose_phases_have_hardly_begun_has_no_verdict() -> None:
    """Nor one whose phases no bound knows."""
    state = fakes.folded([PhaseEnded(at=START_NS, phase="collect", duration_s=1.0)])

    assert assess(state, Assessment(), state.last_stamp).bound is None
    assert _rank_of(juggle=0.5).bound is None


def test_a_host_that_launches_without_rest_is_late() -> None:
    """As an H100 was seen under PPO in eager mode: a core of the host at 92 to 95 %, the device at 25 %."""
    busy = LaneFacts(name="gpu1", age_s=0, util=0.25, power=0.24, memory=0.04, core=0.92)
    swings = msgspec.structs.replace(busy, saw="util swings 0% to 70% every 3.6s")
    rests = msgspec.structs.replace(busy, core=0.85)

    assert [judge([one], AnomalyLimits())["gpu1"].state for one in (busy, swings, rests)] == [
        "HOST-BOUND", "HOST-BOUND", "unknown"
    ]  # fmt: skip
    assert judge([busy], AnomalyLimits())["gpu1"].why == "util 25% while one core is at 92%: the host is late"

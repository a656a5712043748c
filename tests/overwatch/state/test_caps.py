"""More names and ids than a run may have: what was known goes on, the rest is counted by name."""

from collections.abc import Iterator

import pytest

from overwatch.catalog import Stage
from overwatch.diagnose import Assessment, assess
from overwatch.events import (
    EnvCrashed,
    Event,
    GateEvaluated,
    LogLine,
    Origin,
    PhaseEnded,
    Record,
    SeedStageChanged,
    Severity,
)
from overwatch.state import RunState, apply, dump, load, new_run
from overwatch.state.caps import MAX_SOURCES, evict
from overwatch.state.measure import MAX_CUSTOM
from overwatch.state.run import LANES, OTHER, PHASE_NAMES, SLOT_NAMES
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import lane_readings


@pytest.fixture
def state() -> RunState:
    """A run of four envs that may have six."""
    made = fakes.folded([fakes.envs(START_NS, [0, 1, 2, 3], step_time=[0.01] * 4)])
    made.envs.most = 6
    return made


def report(state: RunState, *events: Event) -> None:
    """Further records of the usual producer."""
    seq = next(iter(state.sources.values())).high
    for record in fakes.records(events, first_seq=seq + 1):
        apply(state, record, record.event.at + 1_000_000)


def test_a_record_loses_only_the_envs_beyond(state: RunState) -> None:
    """Known envs keep their numbers, the first new ones get the room there is, the others are named."""
    ids = [9, 3, 8, 0, 7, 1]
    report(state, fakes.envs(START_NS + SECOND, ids, step_time=[0.9, 0.3, 0.8, 0.5, 0.7, 0.1]))

    values = {
        int(one): float(state.envs.values["step_time"][state.envs.row(int(one))])
        for one in state.envs.ids[:6]
    }
    assert values == {0: 0.5, 1: 0.1, 2: 0.01, 3: 0.3, 7: 0.7, 8: 0.8}
    assert (state.envs.n, state.overflow.counts, list(state.overflow.offenders["env"])) == (
        6,
        {"env": 1},
        ["9"],
    )


@pytest.mark.parametrize("what", ["episodes", "actions", "crash", "non-finite"])
def test_facts_about_unknown_envs_do_not_fill_a_full_run(state: RunState, what: str) -> None:
    """Whatever speaks of envs, there are no more than there may be."""
    ids = list(range(100, 140))
    events: dict[str, list[Event]] = {
        "episodes": [fakes.ended(START_NS + SECOND, ids, [1.0] * 40)],
        "actions": [fakes.acted(START_NS + SECOND, ids, ["wait"] * 40)],
        "crash": [fakes.crashed(START_NS + SECOND, one) for one in ids],
        "non-finite": [fakes.non_finite(START_NS + SECOND, "overwatch.policy.loss", tuple(ids))],
    }
    report(state, *events[what])

    assert state.envs.n <= 6


def metrics() -> Iterator[Event]:
    """Policy values that no row knows, too many."""
    for number in range(MAX_CUSTOM + 5):
        yield fakes.policy(START_NS + number, index=number, **{f"made_up_{number}": 1.0})


def test_custom_values_beyond_the_most_are_named() -> None:
    """The first ones live on, the rest is counted by name, and one finding states it."""
    state = fakes.folded(list(metrics()))
    judged = assess(state, Assessment(), state.last_stamp + SECOND)

    assert len(state.policy) == MAX_CUSTOM
    assert state.overflow.counts == {"metric": 5}
    problems = {item.problem.code: item.problem for item in judged.assessment.findings.values()}
    assert f"overwatch.custom.made_up_{MAX_CUSTOM}" in problems["too-many-names"].message


def test_a_run_that_is_capped_has_a_finding_that_names_the_setting(state: RunState) -> None:
    """Its message has both counts, its hint the usual mistake and what to raise; others have neither."""
    assert evict(state, state.envs.silent(START_NS + SECOND)) == 4
    report(state, fakes.envs(START_NS + SECOND, range(9), step_time=[0.1] * 9))
    judged = assess(state, Assessment(), state.last_stamp + SECOND)
    (capped,) = (one.problem for one in judged.assessment.findings.values())
    other = assess(fakes.folded(list(metrics())), Assessment(), state.last_stamp + SECOND)
    hints = [one.problem.hint for one in other.assessment.findings.values()]

    assert capped.code == "too-many-names"
    assert "env 3 times, 4 long silent envs evicted" in capped.message
    assert "counts episodes" in str(capped.hint)
    assert "exporters.aggregator.max_state_mib" in str(capped.hint)
    assert not any("max_state_mib" in str(hint) for hint in hints)


def test_slots_and_lanes_beyond_the_most_are_one() -> None:
    """Names without room share one, and phases without room are left out."""
    seeds = [
        SeedStageChanged(
            at=START_NS + n,
            env_id=0,
            slot=f"slot{n}",
            seed_id="s",
            before=Stage.DORMANT,
            after=Stage.TRAINING,
        )
        for n in range(SLOT_NAMES + 10)
    ]
    phases = [PhaseEnded(at=START_NS + n, phase=f"phase{n}", duration_s=0.1) for n in range(PHASE_NAMES + 3)]
    lanes = [lane_readings(START_NS + n, [f"GPU-{n}"], utilization=[0.5]) for n in range(LANES + 4)]
    state = fakes.folded([*seeds, *phases, *lanes])

    assert len(state.slot_names.words) == SLOT_NAMES == state.envs.stage.shape[1]
    assert state.slot_names.words[-1] == OTHER
    assert len(state.phases[0]) == PHASE_NAMES
    assert len(state.lanes) == LANES
    assert (state.overflow.counts["phase"], state.overflow.counts["lane"]) == (3, 4)
    assert load(dump(state)).overflow == state.overflow


def test_lives_of_producers_beyond_the_most_replace_the_most_silent() -> None:
    """However often a producer begins again, the lives that speak are kept."""
    state: RunState | None = None
    for number in range(MAX_SOURCES + 20):
        line = LogLine(at=START_NS + number, severity=Severity.INFO, message="hello", subsystem="test")
        record = Record(origin=Origin(run_id="run-1", epoch=f"e{number}"), event=line, seq=1)
        state = state or new_run(record)
        apply(state, record, record.event.at)

    assert state is not None
    assert len(state.sources) == MAX_SOURCES
    assert f"trainer/0/e{MAX_SOURCES + 19}" in state.sources
    assert "trainer/0/e0" not in state.sources


def test_what_an_env_died_of_is_remembered_by_its_beginning(state: RunState) -> None:
    """And why a gate failed it: there may be a quarter of a million envs."""
    report(
        state,
        EnvCrashed(at=START_NS, env_id=7, error="x" * 10**6),
        GateEvaluated(
            at=START_NS, env_id=7, slot="r0c0", seed_id="s1", gate="G1", passed=False, message="y" * 10**6
        ),
    )

    kept = state.envs.crashes[7], state.envs.failed_why[7]
    assert all(text.endswith("(cut, of 1,000,000 characters)") and len(text) < 1100 for text in kept)


def test_a_huge_line_is_remembered_by_its_beginning_and_states_so(state: RunState) -> None:
    """Message and fields are bounded; what is short is kept as it is."""
    short = LogLine(at=START_NS, severity=Severity.INFO, message="x" * 4096, fields={"user": "y" * 1024})
    fields = {f"field-{number}": "z" * 10**5 for number in range(1000)}
    huge = LogLine(at=START_NS + 1, severity=Severity.INFO, message="é" * 10**6, fields=fields)
    report(state, short, huge)

    first, second = state.feed.items[-2:]
    assert (first.message, first.fields) == (short.message, short.fields)
    assert second.message.startswith("é" * 4096)
    assert second.message.endswith("(cut, of 1,000,000 characters)")
    assert second.fields["cut"] == "968 more fields"
    assert len(second.message) + sum(map(len, second.fields.values())) < 50_000

"""The fold: what each kind of event does to a run."""

import math

import msgspec
import numpy as np
import pytest

from overwatch.catalog import KL, Scope, Stage
from overwatch.catalog.policy import EXPLAINED_VARIANCE
from overwatch.events import (
    Column,
    Conflated,
    EnvRolledBack,
    EpisodeEnded,
    Event,
    GateEvaluated,
    Measured,
    Origin,
    PhaseEnded,
    Record,
    SeedStageChanged,
    scalars,
)  # fmt: skip
from overwatch.state import RunState, apply, dump, load, new_run
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS


def test_a_policy_value_is_kept_with_its_judgement() -> None:
    """The newest value, its history and its status are there, and the update is counted."""
    state = fakes.folded(
        [fakes.policy(START_NS + i, index=i, kl_divergence=0.01 * (i + 1)) for i in range(3)]
    )
    series = state.policy[KL.name]

    assert series.value == pytest.approx(0.03)
    assert series.history.items == [0.01, 0.02, pytest.approx(0.03)]
    assert series.warnings == 2
    assert (state.update, state.updates) == (2, 3)


def test_no_breach_between_ticks_is_missed() -> None:
    """A critical value that is gone by the next update still counts."""
    state = fakes.folded(
        [fakes.policy(START_NS + i, index=i, kl_divergence=v) for i, v in enumerate([0.01, 0.2, 0.01])]
    )

    assert state.policy[KL.name].criticals == 1


def test_history_holds_ten() -> None:
    """The eleventh value pushes the first out."""
    state = fakes.folded([fakes.policy(START_NS + i, index=i, entropy=i / 100) for i in range(11)])

    assert state.policy["overwatch.policy.entropy"].history.items == [i / 100 for i in range(1, 11)]


def test_nan_is_critical_for_kl_and_undefined_for_explained_variance() -> None:
    """What a NaN means is the row's own word."""
    state = fakes.folded([fakes.policy(START_NS, kl_divergence=math.nan, explained_variance=math.nan)])
    kl, ev = state.policy[KL.name], state.policy[EXPLAINED_VARIANCE.name]

    assert (kl.value, kl.non_finite, kl.criticals) == (None, "nan", 1)
    assert (ev.value, ev.non_finite, ev.criticals, ev.judgement) == (None, "undefined", 0, None)


def test_custom_values_are_kept_and_never_judged() -> None:
    """A name that no row knows is shown, whatever its size."""
    state = fakes.folded([fakes.policy(START_NS, my_loss=1e9)])

    assert state.policy["overwatch.custom.my_loss"].value == 1e9
    assert state.policy["overwatch.custom.my_loss"].judgement is None


def test_env_columns_fold_by_env_id_in_any_order() -> None:
    """Values find their env however the ids are ordered, and unseen envs appear."""
    state = fakes.folded(
        [
            fakes.envs(START_NS, [5, 2], reward=[0.5, 0.2]),
            fakes.envs(START_NS + 1, [2, 9, 5], reward=[2.0, 9.0, 5.0]),
        ]
    )
    by_id = {
        int(i): float(v) for i, v in zip(state.envs.ids[:3], state.envs.values["reward"][:3], strict=True)
    }

    assert by_id == {5: 5.0, 2: 2.0, 9: 9.0}


def test_what_was_never_measured_has_no_time() -> None:
    """An env that reported reward alone has no metric, not a metric of 0."""
    state = fakes.folded([fakes.envs(START_NS, [0], reward=[1.0])])

    assert state.envs.times["metric"][0] == 0
    assert math.isnan(state.envs.values["metric"][0])


def test_steps_count_envs_times_steps_and_never_twice() -> None:
    """Two envs over steps 1 to 3 are six steps; a step sent again adds none."""
    reported: list[Event] = [
        fakes.envs(START_NS + i, [0, 1], index=i, reward=[0.0, 0.0]) for i in (1, 2, 3, 3)
    ]

    assert fakes.folded(reported).steps == 6


def test_returns_are_the_mean_of_finished_episodes() -> None:
    """An env's return is over its last finished episodes; before the first it has none."""
    state = fakes.folded(
        [
            fakes.envs(START_NS, [0, 1], reward=[0.0, 0.0]),
            *[fakes.ended(START_NS + i, [0], [float(i)]) for i in range(1, 13)],
        ]
    )

    assert state.envs.mean_return()[0] == pytest.approx(sum(range(3, 13)) / 10)
    assert math.isnan(state.envs.mean_return()[1])
    assert state.episodes == 12


def test_a_seed_moves_through_its_slot() -> None:
    """Stage, blueprint, alpha and gate of a slot follow the facts."""
    state = fakes.folded(
        [
            SeedStageChanged(
                at=START_NS, env_id=3, slot="r0c1", seed_id="s", before=Stage.DORMANT, after=Stage.GERMINATED,
                blueprint="mlp_small",
            ),
            GateEvaluated(at=START_NS + 1, env_id=3, slot="r0c1", seed_id="s", gate="G1", passed=True),
        ]
    )  # fmt: skip
    slot = state.slot_names.codes["r0c1"]

    assert state.envs.stage[0, slot] == Stage.GERMINATED.code
    assert state.blueprint_names.words[state.envs.blueprint[0, slot]] == "mlp_small"
    assert state.envs.gates[3]["r0c1"] == "G1 passed"


@pytest.mark.parametrize(
    ("passed", "score", "failed", "shown"),
    [
        (True, 0.714, (), "G2 0.71"),
        (False, 0.04, ("gradient_ratio", "age"), "G2 fail: gradient ratio"),
        (False, None, (), "G2 fail"),
    ],
)
def test_a_gate_shows_its_score_or_what_failed(
    *, passed: bool, score: float | None, failed: tuple[str, ...], shown: str
) -> None:
    """A passed gate is its score, a failed one its first failed check, in words."""
    gate = GateEvaluated(
        at=START_NS, env_id=3, slot="r0c1", seed_id="s", gate="G2", passed=passed, score=score,
        checks_failed=failed,
    )  # fmt: skip

    assert fakes.folded([gate]).envs.gates[3]["r0c1"] == shown


def test_gradient_health_stays_with_the_seed_it_was_measured_of() -> None:
    """It is kept while the seed is reported without it, and over once the slot is bare or has a new seed."""
    first = fakes.slots(START_NS, [0, 0, 1], ["a", "b", "a"], ["training"] * 3)
    health = {"overwatch.slot.gradient_health": Column.of([0.62, 0.04, 0.5])}
    first = msgspec.structs.replace(first, values={**first.values, **health})
    later = fakes.slots(START_NS + 1, [0, 0, 1], ["a", "b", "a"], ["blending", "pruned", "germinated"])
    state = fakes.folded([first, later])

    np.testing.assert_array_equal(state.envs.grad[:2, :2], [[0.62, 0.04], [math.nan, math.nan]])

    embargoed = SeedStageChanged(
        at=START_NS + 2, env_id=0, slot="b", seed_id="s", before=Stage.PRUNED, after=Stage.EMBARGOED
    )
    state = fakes.folded([first, later, embargoed])
    np.testing.assert_array_equal(state.envs.grad[0, :2], [0.62, math.nan])


def test_slots_are_a_set_not_a_schema() -> None:
    """Envs with different slots keep their own; a slot that an env does not have is absent."""
    state = fakes.folded([fakes.slots(START_NS, [0, 1], ["a", "b"], ["dormant", "training"])])

    assert state.slot_names.words == ["a", "b"]
    np.testing.assert_array_equal(
        state.envs.stage[:2, :2], [[Stage.DORMANT.code, -1], [-1, Stage.TRAINING.code]]
    )


def test_a_crashed_env_lives_again_when_it_speaks() -> None:
    """The crash stays until the env reports after it."""
    state = fakes.folded([fakes.envs(START_NS, [0], reward=[0.0]), fakes.crashed(START_NS + 1, 0)])
    assert state.envs.crashed_at[0] == START_NS + 1

    apply(state, fakes.records([fakes.envs(START_NS + 2, [0], reward=[0.0])], first_seq=3)[0], START_NS + 3)
    assert state.envs.crashed_at[0] == 0
    assert state.crashes == 1


def test_a_record_sent_again_is_not_folded_again() -> None:
    """At-least-once delivery counts once; a late record that filled a gap still counts."""
    state = new_run(fakes.records([fakes.policy(START_NS)])[0])
    reported = [
        Record(origin=ORIGIN, event=fakes.policy(START_NS + seq, index=seq, entropy=0.5), seq=seq)
        for seq in (1, 3, 1, 2, 3)
    ]

    assert [apply(state, record, START_NS + 100) for record in reported] == [True, True, False, True, False]
    assert state.updates == 3


def test_bare_numbers_where_words_belong_are_refused() -> None:
    """A stage column without labels raises and names the fault."""
    event = Measured(
        at=START_NS,
        scope=Scope.SLOT,
        keys={"env_id": Column.of([0]), "slot": Column.of([1])},
        values=scalars({"overwatch.slot.alpha": 0.5}),
    )

    with pytest.raises(ValueError, match="needs labels"):
        fakes.folded([event])


def _eventful() -> list[Event]:
    return [
        fakes.started(START_NS),
        fakes.envs(START_NS + SECOND, [0, 1, 2], index=1, reward=[0.1, 0.2, 0.3], lane=["cpu"] * 3),  # type: ignore[list-item]  # lanes are words
        fakes.slots(START_NS + SECOND, [0, 1], ["r0c0", "r0c1"], ["training", "holding"]),
        fakes.acted(START_NS + SECOND, [0, 1], ["wait", "prune"], [None, "r0c0"]),
        fakes.ended(START_NS + 2 * SECOND, [0, 1, 2], [1.0, 2.0, 3.0]),
        fakes.policy(START_NS + 2 * SECOND, index=1, kl_divergence=0.01, entropy=math.nan),
        fakes.non_finite(START_NS + 2 * SECOND, "overwatch.policy.entropy", (1,)),
        fakes.crashed(START_NS + 3 * SECOND, 2),
        SeedStageChanged(
            at=START_NS + 3 * SECOND, env_id=0, slot="r0c0", seed_id="s", before=Stage.TRAINING,
            after=Stage.PRUNED,
        ),
        GateEvaluated(
            at=START_NS + 3 * SECOND, env_id=1, slot="r0c1", seed_id="t", gate="G2", passed=False,
            checks_failed=("health",),
        ),
        PhaseEnded(at=START_NS + 3 * SECOND, phase="collect", duration_s=0.5),
        Measured(
            at=START_NS + 3 * SECOND,
            scope=Scope.GPU,
            keys={"gpu_id": Column.of_labels(["cpu"])},
            values={"hw.power": Column.of([300.0]), "overwatch.gpu.throttle": Column.of_labels(["thermal"])},
        ),
        fakes.envs(START_NS + 4 * SECOND, [0, 1, 2], index=9, rent=[0.1, 0.2, 0.3], metric=[0.5, 0.6, 0.7]),
        fakes.finished(START_NS + 4 * SECOND),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_checkpoint_is_the_state(cut: int) -> None:
    """Folding on from a reloaded state ends in the same bytes as folding straight through."""
    events = _eventful()
    straight = fakes.folded(events)
    first: RunState = load(dump(fakes.folded(events[:cut])))
    for record in fakes.records(events)[cut:]:
        apply(first, record, record.event.at + 1_000_000)

    assert dump(first) == dump(straight)


def _of_rank(rank: int, event: Event, seq: int, epoch: str = "e") -> Record:
    origin = Origin(run_id="run-1", rank=rank, epoch=f"{epoch}{rank}", ours=True)
    return Record(origin=origin, event=event, seq=seq)


def test_a_restarted_exporter_does_not_keep_the_run_open() -> None:
    """The life that was replaced never states that it ended; the newest one's end counts."""
    reported = [
        _of_rank(0, fakes.started(START_NS), 1, "first"),
        _of_rank(0, fakes.policy(START_NS + 1, entropy=0.5), 1, "second"),
        _of_rank(0, fakes.finished(START_NS + 2), 2, "second"),
    ]
    state = new_run(reported[0])
    for place, record in enumerate(reported):
        apply(state, record, START_NS + 10 + place)

    assert state.finished is not None


@pytest.mark.parametrize(("saved", "ends"), [(3, True), (2, False), (1, False)])
def test_a_run_that_is_resumed_is_one_run_that_goes_on(saved: int, ends: bool) -> None:  # noqa: FBT001
    """Its next life numbers on from its checkpoint: open again, and what it repeats is counted once."""
    first = [
        fakes.started(START_NS),
        *(fakes.policy(START_NS + n, n, entropy=0.5) for n in (1, 2, 3)),
        *([fakes.finished(START_NS + 4)] if ends else []),
    ]
    second = [
        msgspec.structs.replace(fakes.started(START_NS + 5), resumed=saved),
        *(fakes.policy(START_NS + 5 + n, n, entropy=0.25) for n in range(saved + 1, 5)),
    ]
    reported = [_of_rank(0, event, seq, "first") for seq, event in enumerate(first, start=1)]
    reported += [_of_rank(0, event, seq, "second") for seq, event in enumerate(second, start=1)]
    state = new_run(reported[0])
    for place, record in enumerate(reported):
        apply(state, record, START_NS + 10 + place)

    assert (state.finished, state.updates, state.update) == (None, 4, 4)


def _repeating(resumed: int | None) -> dict[str, list[Event]]:
    """Two lives: the first went on to update 6 and step 12, the second begins behind update 2 and step 4."""

    def ended(at: int, step: int, ids: list[int], returns: list[float]) -> EpisodeEnded:
        columns = {"env_id": Column.of(ids), "episode_return": Column.of(returns)}
        return EpisodeEnded(at=START_NS + at, step=step, **columns)

    def undone(at: int, step: int) -> EnvRolledBack:
        return EnvRolledBack(at=START_NS + at, env_id=1, reason="nan", step=step)

    def updates(at: int, first: int, last: int) -> Measured:
        many = Conflated(n=last - first + 1, first=first, updates=last - first + 1)
        return msgspec.structs.replace(fakes.policy(START_NS + at, last, entropy=0.5), conflated=many)

    first = [
        ended(1, 2, [0], [7.0]),
        ended(2, 8, [0, 1], [1.0, 2.0]),
        undone(3, 11),
        ended(4, 12, [1], [3.0]),
    ]
    second = [ended(6, 8, [0, 1], [1.0, 2.0]), undone(7, 11), ended(8, 12, [1], [5.0])]
    second += [ended(10, 16, [0], [4.0]), undone(11, 17), ended(12, 18, [1], [6.0])]

    def steps(at: int, total: float) -> Measured:
        return Measured(at=START_NS + at, scope=Scope.RUN, values=scalars({"overwatch.run.steps": total}))

    first.append(steps(4, 24.0))
    second = [steps(6, 16.0), *second, steps(12, 36.0)]
    begun = msgspec.structs.replace(fakes.started(START_NS + 5), resumed=resumed)
    return {
        "first": [fakes.started(START_NS), *first, updates(4, 1, 6)],
        "second": [begun, *second, updates(9, 3, 8)],
    }


def _lived(lives: dict[str, list[Event]]) -> RunState:
    """The state after whole lives, one behind the other."""
    reported = [
        _of_rank(0, event, n, name) for name, all_of in lives.items() for n, event in enumerate(all_of, 1)
    ]
    state = new_run(reported[0])
    for place, record in enumerate(reported):
        apply(state, record, START_NS + 100 + place)
    return state


def test_what_a_resumed_run_repeats_is_counted_once() -> None:
    """Updates that came as one, episodes and rollbacks by their step; the newest return is shown."""
    state = _lived(_repeating(2))
    envs = state.envs

    assert state.steps == 36
    assert (state.updates, state.episodes, state.rollbacks) == (8, 6, 2)
    assert (envs.episodes[:2].tolist(), envs.rollbacks[:2].tolist()) == ([3, 3], [0, 2])
    assert envs.mean_return().tolist() == pytest.approx([4.0, 13 / 3])
    assert [(one.env_id, one.number, one.rank) for one in state.best.episodes] == [
        (0, 1, 7.0), (1, 3, 6.0), (0, 3, 4.0), (1, 2, 3.0), (1, 1, 2.0),
    ]  # fmt: skip


def test_a_life_that_comes_late_counts_what_the_next_one_did_not_repeat() -> None:
    """A spool that was delivered after the resumed run's records."""
    lives = _repeating(2)
    state = _lived({name: lives[name] for name in ("second", "first")})

    assert (state.updates, state.episodes, state.rollbacks, state.steps) == (8, 6, 2, 36)
    assert state.envs.episodes[:2].tolist() == [3, 3]


def test_a_run_that_begins_anew_repeats_nothing() -> None:
    """The same numbers without a checkpoint behind them are other episodes and updates."""
    state = _lived(_repeating(None))

    assert (state.updates, state.episodes, state.rollbacks, state.steps) == (12, 9, 3, 60)


def test_episodes_without_a_step_all_count() -> None:
    """What has no number cannot be a repetition."""
    one = EpisodeEnded(at=START_NS, env_id=Column.of([0]), episode_return=Column.of([1.0]))

    assert fakes.folded([one, one]).episodes == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, ["ok", "warning", "critical"]),
        ({"target_kl": "0.1"}, ["ok", "ok", "ok"]),
        ({"target_kl": "0.02"}, ["ok", "warning", "warning"]),
        ({"target_kl": "None"}, ["ok", "warning", "critical"]),
        ({"target_kl": "-1"}, ["ok", "warning", "critical"]),
    ],
)
def test_kl_is_judged_by_the_target_that_the_run_declared(config: dict[str, str], words: list[str]) -> None:
    """With a target KL warns beyond it and is critical beyond twice; without one TELE-110's limits stand."""
    found = []
    for kl in (0.01, 0.025, 0.035):
        state = fakes.folded(
            [fakes.started(START_NS, config=config), fakes.policy(START_NS + 1, kl_divergence=kl)]
        )
        judgement = state.policy[KL.name].judgement
        assert judgement is not None
        found.append(judgement.status.word)

    assert found == words


@pytest.mark.parametrize("wrong", [0.5, float("nan"), float("inf"), -1e300])
def test_an_env_id_that_is_no_whole_number_is_refused(wrong: float) -> None:
    """A record of it is malformed: it makes no env of another number, and leaves the others alone."""
    state = fakes.folded([fakes.envs(START_NS, [0, 1], reward=[0.0, 1.0])])
    bad = EpisodeEnded(at=START_NS, env_id=Column.of([0.0, wrong]), episode_return=Column.of([1.0, 1.0]))
    with pytest.raises(ValueError, match="an env id is not a whole number"):
        apply(state, Record(origin=ORIGIN, event=bad, seq=2), START_NS)

    assert state.envs.n == 2


def test_env_ids_may_come_as_whole_floats() -> None:
    """Some trainers know no other numbers."""
    reported = EpisodeEnded(at=START_NS, env_id=Column.of([3.0, 7.0]), episode_return=Column.of([1.0, 1.0]))

    assert fakes.folded([reported]).envs.ids[:2].tolist() == [3, 7]


@pytest.mark.parametrize(("num_envs", "of_one", "in_all"), [(2, 64, 128), (5000, 1, 4096)])
def test_facts_are_bounded_in_all_and_for_each_env(num_envs: int, of_one: int, in_all: int) -> None:
    """Few envs keep their newest; of very many those spoken of last, and a dump keeps that order."""
    rounds = 200 if num_envs == 2 else 1
    reported = [fakes.crashed(START_NS + i, i % num_envs) for i in range(num_envs * rounds)]
    facts = load(dump(fakes.folded(reported))).facts

    assert (facts.total, sum(map(len, facts.by_env.values()))) == (in_all, in_all)
    assert len(facts.of(num_envs - 1)) == of_one
    assert facts.of(num_envs - 1)[-1].at == reported[-1].at
    assert next(reversed(facts.by_env)) == num_envs - 1


def test_counters_that_are_sent_too_large_still_fit_a_checkpoint() -> None:
    """Steps, updates, non-finite values, lost events: beyond all reason they stop, and the run goes on."""
    huge = 2**63 - 1
    step = fakes.envs(START_NS, [0, 1, 2], index=huge, reward=[0.0] * 3)
    bad = msgspec.structs.replace(fakes.non_finite(START_NS, "reward"), count=huge)
    lost = Measured(at=START_NS, scope=Scope.TOWER, values=scalars({"overwatch.sdk.dropped": 1e30}))
    many = msgspec.structs.replace(fakes.policy(START_NS, kl_divergence=0.1), conflated=Conflated(n=huge))
    first = fakes.envs(START_NS, [0, 1, 2], index=0, reward=[0.0] * 3)
    state = fakes.folded([first, step, bad, bad, bad, lost, many, many, many])

    assert load(dump(state)).steps == state.updates == state.non_finite == 2**53

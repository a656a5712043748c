"""Several ranks are one run."""

from hypothesis import given
from hypothesis import strategies as st

from overwatch.events import Origin, Record, RunStarted
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import START_NS


def _reported(events: list[tuple[int, object]]) -> RunState:
    state = None
    for seq, (rank, event) in enumerate(events, start=1):
        origin = Origin(run_id="r", rank=rank, epoch=f"e{rank}", ours=True)
        record = Record(origin=origin, event=event, seq=seq)
        state = state or new_run(record)
        apply(state, record, START_NS + seq)
    assert state is not None
    return state


def test_the_lowest_rank_speaks_for_the_policy_and_the_others_give_the_spread() -> None:
    """An update of four ranks is one update, whatever order they come in."""
    numbers = [(3, 0.7), (0, 0.5), (1, 0.4), (2, 0.6)]
    state = _reported([(rank, fakes.policy(START_NS, index=8, entropy=value)) for rank, value in numbers])
    state2 = _reported(
        [(rank, fakes.policy(START_NS, index=8, entropy=value)) for rank, value in numbers[1:]]
    )
    (name,) = state2.policy
    assert state2.policy[name].value == 0.5
    assert state2.updates == 1
    assert state.update == 8
    spread = state2.ranks.spread(name, 0.5)
    assert spread is not None
    assert abs(spread - 0.2) < 1e-12


def test_a_run_has_the_devices_and_envs_of_all_its_ranks() -> None:
    """Rank 0 defines it, whoever came first."""
    starts = [
        (rank, RunStarted(at=START_NS, task=f"task{rank}", devices=(f"gpu{rank}",), n_envs=8))
        for rank in (2, 0, 1)
    ]
    started = _reported(starts).started
    assert started is not None
    assert (started.task, started.devices, started.n_envs) == ("task0", ("gpu0", "gpu1", "gpu2"), 24)


def test_steps_of_all_ranks_add_up() -> None:
    """Each rank numbers its own env steps; a step of four envs on two ranks is eight steps."""
    steps = [
        (rank, fakes.envs(START_NS + index, range(4), index=index, reward=[0.0] * 4))
        for index in (1, 2)
        for rank in (0, 1)
    ]
    assert _reported(steps).steps == 16


@given(st.permutations([0] * 6 + [1] * 6 + [2] * 6), st.sampled_from([None, 1]))
def test_the_count_of_updates_is_that_of_the_lowest_rank_however_late_it_comes(
    ranks: list[int], first: int | None
) -> None:
    """Updates that higher ranks reported before it are not the run's, and neither are their values."""
    seen = dict.fromkeys(range(3), 0)
    events: list[tuple[int, object]] = []
    for rank in ranks:
        seen[rank] += 1
        index = None if first is None else seen[rank]
        events.append((rank, fakes.policy(START_NS, index=index, kl_divergence=0.5 if rank else 0.001)))
    state = _reported(events)
    assert state.updates == 6
    series = state.policy["overwatch.policy.kl_divergence"]
    assert (series.updates, series.criticals, series.highest) == (6, 0, 0.001)
    assert state.ranks.spread("overwatch.policy.kl_divergence", series.value) == 0.499

"""Lanes are known by id and shown by name."""

from overwatch.catalog import Scope
from overwatch.events import Column, Event, Measured, Origin, Record, RunStarted
from overwatch.state.apply import apply, new_run
from overwatch.state.run import RunState, dump, load

SECOND = 1_000_000_000


def reported(*events: tuple[int, Event]) -> RunState:
    """The state after these events, each with the rank that sent it."""
    records = [Record(origin=Origin(run_id="r", rank=rank, ours=True), event=event) for rank, event in events]
    state = new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def started(node: str, lanes: dict[str, str]) -> RunStarted:
    """A start on a node whose lanes are `{id: label}`."""
    return RunStarted(at=SECOND, node=node, devices=tuple(lanes), lanes=lanes)


def sample(lane: str, label: str, node: str, util: float) -> Measured:
    """A sampler's look at one GPU."""
    return Measured(
        at=2 * SECOND,
        scope=Scope.GPU,
        keys={"gpu_id": Column.of_labels([lane])},
        values={
            "hw.gpu.utilization": Column.of([util]),
            "label": Column.of_labels([label]),
            "node": Column.of_labels([node]),
        },
    )


def envs(lane: str, *env_ids: int) -> Measured:
    """Envs that run on a lane."""
    return Measured(
        at=3 * SECOND,
        scope=Scope.ENV,
        keys={"env_id": Column.of(env_ids)},
        values={"lane": Column.of_labels([lane] * len(env_ids))},
    )


def test_a_lane_is_shown_by_what_its_trainer_calls_it() -> None:
    """Readings by UUID and envs by UUID meet under `cuda:0`."""
    state = reported(
        (0, started("n1", {"GPU-a": "cuda:0"})),
        (0, sample("GPU-a", "cuda:0", "n1", 0.5)),
        (0, envs("GPU-a", 0, 1)),
    )

    assert state.lane_names.words == ["cuda:0"]
    assert state.lanes["cuda:0"]["utilization"].value == 0.5
    assert state.envs.lane[:2].tolist() == [0, 0]
    assert state.lane_ids.ids == {"cuda:0": "GPU-a"}
    assert state.lane_ranks == {"cuda:0": 0}


def test_the_first_gpus_of_two_nodes_are_two_lanes() -> None:
    """Both trainers send `cuda:0`; the second is shown with its node."""
    state = reported(
        (0, started("n1", {"GPU-a": "cuda:0"})),
        (1, started("n2", {"GPU-b": "cuda:0"})),
        (0, sample("GPU-a", "cuda:0", "n1", 0.5)),
        (1, sample("GPU-b", "cuda:0", "n2", 0.9)),
        (1, envs("GPU-b", 7)),
    )

    assert {name: state.lanes[name]["utilization"].value for name in state.lanes} == {
        "cuda:0": 0.5,
        "cuda:0@n2": 0.9,
    }
    assert state.lane_names.words[int(state.envs.lane[0])] == "cuda:0@n2"
    assert state.lane_ids.nodes == {"cuda:0": "n1", "cuda:0@n2": "n2"}


def test_ranks_that_see_one_gpu_each_are_lanes_of_one_node() -> None:
    """Three ranks on one node whose launcher shows each its own GPU as `cuda:0` have three names."""
    state = reported(*[(rank, started("n1", {f"GPU-{rank}": "cuda:0"})) for rank in range(3)])

    assert state.lane_names.words == ["cuda:0", "cuda:0@n1", "cuda:0@n1#2"]


def test_a_sample_alone_names_its_lane() -> None:
    """A GPU that no start named is named as in the sample; one without a name is its id."""
    bare = Measured(
        at=SECOND,
        scope=Scope.GPU,
        keys={"gpu_id": Column.of_labels(["GPU-z"])},
        values={"hw.gpu.utilization": Column.of([0.1])},
    )

    state = reported((0, bare), (0, sample("GPU-y", "cuda:1", "n1", 0.2)))

    assert list(state.lanes) == ["GPU-z", "cuda:1"]


def test_names_survive_a_checkpoint() -> None:
    """The state comes back with its lanes' names."""
    state = reported((0, started("n1", {"GPU-a": "cuda:0"})))

    assert load(dump(state)).lane_ids == state.lane_ids

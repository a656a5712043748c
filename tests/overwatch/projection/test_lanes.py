"""Lanes as views show them: by the trainer's word, with id and node beside it."""

import msgspec

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, assess
from overwatch.events import Column, Event, Measured, RunStarted
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import SECOND, START_NS


def shown(events: list[Event]) -> Snapshot:
    """The default view of a run that sent this."""
    state = fakes.folded(events)
    return project(state, assess(state, Assessment(), state.last_stamp + SECOND), View())


def started(node: str, lanes: dict[str, str]) -> RunStarted:
    """A start on a node with lanes by id."""
    plain = fakes.started(START_NS)
    assert isinstance(plain, RunStarted)
    return msgspec.structs.replace(plain, node=node, devices=tuple(lanes), lanes=lanes)


def sampled(node: str, **util: float) -> Measured:
    """A look at the first GPUs of a node, `a=0.5` being GPU-a."""
    count = len(util)
    return Measured(
        at=START_NS + SECOND,
        scope=Scope.GPU,
        keys={"gpu_id": Column.of_labels([f"GPU-{name}" for name in util])},
        values={
            "hw.gpu.utilization": Column.of(list(util.values())),
            "hw.errors": Column.of([2.0] * count),
            "overwatch.gpu.pcie.receive": Column.of([float("nan")] * count),
            "overwatch.gpu.dips.share": Column.of([0.0 if value > 0.8 else 0.25 for value in util.values()]),
            "overwatch.gpu.dips.length": Column.of(
                [float("nan") if value > 0.8 else 1.5 for value in util.values()]
            ),
            "label": Column.of_labels([f"cuda:{index}" for index in range(count)]),
            "node": Column.of_labels([node] * count),
        },
    )


def two_nodes() -> Snapshot:
    """A run on two nodes that both call their GPU `cuda:0`, with envs on each."""
    return shown(
        [
            started("n1", {"GPU-a": "cuda:0"}),
            started("n2", {"GPU-b": "cuda:0"}),
            sampled("n1", a=0.5),
            sampled("n2", b=0.9),
            fakes.envs(
                START_NS + SECOND, [0, 1, 2], index=1, reward=[1.0] * 3, lane=["GPU-a", "GPU-b", "GPU-b"]
            ),  # type: ignore[list-item]  # lanes are words
        ]
    )


def test_a_lane_shows_what_and_where_it_is() -> None:
    """The trainer's word, the UUID and the node; a reading that is missing is absent."""
    first, second = two_nodes().system.gpus

    assert (first.gpu_id, first.uuid, first.node) == ("cuda:0", "GPU-a", "n1")
    assert (second.gpu_id, second.uuid, second.node) == ("cuda:0@n2", "GPU-b", "n2")
    assert (first.utilization, second.utilization) == (0.5, 0.9)
    assert first.ecc_uncorrected == 2.0
    assert first.pcie_receive_bytes_per_s is None


def test_a_lane_has_its_dips_and_its_verdict_rests_on_them() -> None:
    """Where it was at work all the minute, dips have no length and are no evidence."""
    first, second = two_nodes().system.gpus

    assert (first.dip_share, first.dip_p95_s) == (0.25, 1.5)
    assert (second.dip_share, second.dip_p95_s) == (0.0, None)
    assert first.bound is not None
    assert second.bound is not None
    assert first.bound.evidence[-1] == "below 50% for 25% of a minute, p95 1.50s"
    assert not any("below" in stated for stated in second.bound.evidence)


def test_envs_and_groups_are_on_the_lanes_of_the_panel() -> None:
    """The same words everywhere, so that a view can join them."""
    snapshot = two_nodes()

    assert {env.env_id: env.gpu_id for env in snapshot.envs} == {0: "cuda:0", 1: "cuda:0@n2", 2: "cuda:0@n2"}
    assert {group.gpu_id: group.n_envs for group in snapshot.board.groups} == {"cuda:0": 1, "cuda:0@n2": 2}
    assert snapshot.run.devices == ("cuda:0", "cuda:0@n2")


def test_a_lane_that_has_only_its_name_has_no_other_id() -> None:
    """A trainer's own word is all there is."""
    plain = Measured(
        at=START_NS + SECOND,
        scope=Scope.GPU,
        keys={"gpu_id": Column.of_labels(["gpu0"])},
        values={"hw.gpu.utilization": Column.of([0.5])},
    )

    [lane] = shown([fakes.started(START_NS), plain]).system.gpus

    assert (lane.gpu_id, lane.uuid, lane.node) == ("gpu0", None, None)

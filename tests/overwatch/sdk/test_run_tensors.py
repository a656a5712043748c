"""A run takes tensors wherever it takes numbers, and the training thread reads none of them."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="tensors need PyTorch")

import overwatch.sdk  # noqa: E402 needs torch
from overwatch.catalog import KL, Scope  # noqa: E402
from overwatch.events import ActionTaken, EarlyStopped, EpisodeEnded, Measured, SeedStageChanged  # noqa: E402
from tests.overwatch.sdk.dispatch import Recorder  # noqa: E402
from tests.overwatch.sdk.sink import Sink, http_sink  # noqa: E402

READS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal")


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def report_tensors(run: overwatch.sdk.Run) -> None:
    """A call of every kind that takes numbers, with tensors."""
    weight = torch.tensor(3.0, requires_grad=True)
    run.update(
        update=torch.tensor(7).numpy().item(),
        kl_divergence=torch.tensor(0.25, dtype=torch.bfloat16),
        entropy=0.5,
        policy_loss=weight * 2,
        value_loss=torch.tensor([0.125]),
        custom=torch.tensor(9),
    )
    run.envs(step=1, reward=torch.arange(4, dtype=torch.float32), metric=[1.0, 2.0, 3.0, 4.0])
    run.envs(step=2, reward=torch.tensor(2.5), metric=np.ones(4), env_id=range(4))
    run.episodes(env_id=[1, 3], episode_return=torch.tensor([10.0, 30.0]), length=5, metric=torch.tensor(0.5))
    run.early_stopped(
        update=7, epoch=1, kl_divergence=torch.tensor(0.5), target=torch.tensor(0.25), minibatches_skipped=3
    )


def test_tensors_arrive_as_the_numbers_they_are(sink: Sink) -> None:
    """Scalars, columns and one value for all rows; other numbers of the same call come along."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    report_tensors(run)
    report = run.close(10.0)
    assert (report.delivered, report.refused) == (True, 0)
    measured = {(event.scope, event.index): event for event in sink.events(Measured)}
    update = {name: column.first() for name, column in measured[Scope.POLICY, 7].values.items()}
    assert update == {
        KL.name: 0.25,
        "overwatch.policy.entropy": 0.5,
        "overwatch.policy.loss": 6.0,
        "overwatch.policy.value_loss": 0.125,
        "overwatch.custom.custom": 9.0,
    }
    newest = measured[Scope.ENV, 2].values
    assert newest["overwatch.env.reward"].array().tolist() == [2.5] * 4
    assert newest["overwatch.env.metric"].array().tolist() == [1.0] * 4
    (episodes,) = sink.events(EpisodeEnded)
    assert episodes.episode_return.array().tolist() == [10.0, 30.0]
    assert (episodes.length.array().tolist(), episodes.metric.array().tolist()) == ([5, 5], [0.5, 0.5])
    (stop,) = sink.events(EarlyStopped)
    assert (stop.kl_divergence, stop.target) == (0.5, 0.25)


def test_the_training_thread_reads_no_tensor(sink: Sink) -> None:
    """Nothing is asked for its value in this thread, whatever the call."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    with Recorder() as recorder:
        report_tensors(run)
    assert not [name for name in READS if recorder.seen[name]], recorder.seen
    assert run.close(10.0).delivered


def test_a_tensor_changed_after_the_call_was_reported_as_it_was(sink: Sink) -> None:
    """What is reported is the value at the call, for numbers and for columns."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    number, column = torch.tensor(1.0), torch.ones(3)
    run.update(update=1, entropy=number)
    run.envs(step=1, reward=column)
    number.fill_(math.nan)
    column.fill_(math.nan)
    assert run.close(10.0).delivered
    reported = [next(iter(event.values.values())).array().tolist() for event in sink.events(Measured)]
    assert sorted(reported) == [[1.0], [1.0, 1.0, 1.0]]


def test_tensors_and_floats_in_turns_keep_their_order(sink: Sink) -> None:
    """The short way for floats does not overtake the long one."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    for index in range(40):
        run.update(update=index, entropy=torch.tensor(index / 40) if index % 3 else index / 40)
    assert run.close(10.0).delivered
    updates = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert sum(event.conflated.n if event.conflated else 1 for event in updates) == 40
    assert (updates[-1].index, updates[-1].values["overwatch.policy.entropy"].first()) == (39, 39 / 40)


def test_a_rollout_of_tensors_arrives_as_the_events_of_its_steps(sink: Sink) -> None:
    """Through a real exporter process, which has the words and makes the events."""
    words = overwatch.sdk.WordTables(
        heads=(("op", ("wait", "grow")), ("slot", ("a", "b"))), uses=((True, False), (True, True))
    )
    run = overwatch.sdk.start(
        endpoint=sink.endpoint, sample=False, n_envs=3, slots=["a", "b"], words=words, env_offset=10
    )
    ops = torch.tensor([[0, 1, 1], [1, 1, 0]])
    stage = torch.tensor([[[1, 1], [1, 2], [1, 1]], [[2, 1], [1, 3], [1, 1]]], dtype=torch.uint8)
    with Recorder() as recorder:
        run.rollout(
            first_step=1, steps=2, envs=3, at_first=1e9, at_last=1e9 + 1, lane="cpu",
            reward=torch.arange(6.0).reshape(2, 3), actions=torch.stack([ops, torch.ones_like(ops)], dim=2),
            terminated=torch.tensor([[False] * 3, [False, False, True]]), slot_stage=stage,
            episode_return=torch.full((2, 3), 5.0, dtype=torch.float64),
        )  # fmt: skip
    assert not [name for name in READS if recorder.seen[name]], recorder.seen
    report = run.close(10.0)
    assert (report.delivered, report.refused, report.dropped) == (True, 0, {})
    actions = sink.events(ActionTaken)
    assert [event.op.words() for event in actions] == [["wait", "grow", "grow"], ["grow", "grow", "wait"]]
    assert [event.slot.words() for event in actions] == [[None, "b", "b"], ["b", "b", None]]
    assert [(event.at, event.step) for event in actions] == [(10**18, 1), (10**18 + 10**9, 2)]
    assert [event.env_id.array().tolist() for event in actions] == [[10, 11, 12]] * 2
    moves = [
        (e.env_id, e.slot, e.seed_id, e.before.value, e.after.value) for e in sink.events(SeedStageChanged)
    ]
    assert moves == [
        (11, "b", "1-b-1", "dormant", "germinated"),
        (10, "a", "0-a-1", "dormant", "germinated"),
        (11, "b", "1-b-1", "germinated", "training"),
    ]
    (end,) = sink.events(EpisodeEnded)
    assert (end.env_id.array().tolist(), end.episode_return.array().tolist(), end.length) == (
        [12],
        [5.0],
        None,
    )
    rewards = [event for event in sink.events(Measured) if event.scope is Scope.ENV]
    assert [event.values["overwatch.env.reward"].array().tolist() for event in rewards] == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert all(event.values["lane"].words() == ["cpu"] * 3 for event in rewards)


def test_a_tensor_in_another_unit_arrives_in_its_rows(sink: Sink) -> None:
    """What a library's number is multiplied by is applied once the number is there."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False, library="sb3")
    run.update(update=1, **{"train/entropy_loss": torch.tensor(-0.5), "train/std": 0.25})
    assert run.close(10.0).delivered
    (event,) = sink.events(Measured)
    landed = {name: column.first() for name, column in event.values.items()}
    assert landed == {"overwatch.policy.entropy_nats": 0.5, "overwatch.policy.action_std": 0.25}

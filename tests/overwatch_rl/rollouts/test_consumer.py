"""A trainer's client against a real server: leases, versions, and batches that come again."""

import contextlib

import pytest

from overwatch_rl.rollouts.calls import CallError, Calls, Target
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch
from tests.overwatch_rl.rollouts.serving import ENV, group
from tests.overwatch_rl.rollouts.threaded import consuming, in_thread, proxied


def sent(url: str, groups: int) -> None:
    """Send groups of an environment, the first of which registers it."""
    with contextlib.closing(Calls(Target(url=url))) as calls:
        env_id = calls.post("/register-env", ENV)["env_id"]
        calls.post("/scored_data_list", [group(env_id, first=first) for first in range(groups)])


def leased(trainer: Consumer) -> LeasedBatch:
    """A batch that must be there."""
    found = trainer.try_batch()
    assert isinstance(found, LeasedBatch)
    return found


def test_a_batch_is_held_until_it_is_acknowledged_or_given_back() -> None:
    """Given back it comes again, marked; extended it is held; acknowledged it is used."""
    with in_thread() as server, consuming(server.url) as trainer:
        sent(server.url, 4)
        first = leased(trainer)
        assert trainer.release(first)
        again = leased(trainer)

        assert [found["tokens"] for found in again.groups] == [found["tokens"] for found in first.groups]
        assert [item["redelivered"] for item in again.items] == [True, True]
        assert trainer.extend(again, 500.0)
        assert trainer.acknowledge(again)
        assert not trainer.extend(again)
        assert not trainer.release(again)
        assert server.service.state.account.acknowledged.groups == 2


def test_what_lacks_is_the_answer_where_there_is_no_batch() -> None:
    """The server's reason is there to be shown."""
    with in_thread() as server, consuming(server.url) as trainer:
        found = trainer.try_batch()

    assert isinstance(found, dict)
    assert (found["lack"], found["message"]) == ("few", "0 of 4 sequences are queued")


def test_a_trainer_that_did_not_register_is_an_error() -> None:
    """It names the call that is missing."""
    with (
        in_thread() as server,
        contextlib.closing(Consumer(Target(url=server.url))) as trainer,
        pytest.raises(CallError, match="POST /register first"),
    ):
        trainer.try_batch()


def test_waiting_for_a_batch_ends_with_the_last_step_or_when_it_is_stopped() -> None:
    """No more steps: `None` at once; stopped: `None` too."""
    with in_thread() as server, consuming(server.url, num_steps=1) as trainer:
        sent(server.url, 2)
        assert trainer.acknowledge(leased(trainer))

        assert trainer.batch() is None
    with in_thread() as server:
        target = Target(url=server.url)
        with contextlib.closing(Consumer(target)) as trainer:
            trainer.register(batch_size=4, max_token_len=8)
            target.stop.set()
            assert trainer.batch() is None


def test_versions_rise_within_a_lineage() -> None:
    """An older number is an error; a new lineage may begin lower."""
    with in_thread() as server, consuming(server.url) as trainer:
        trainer.state_version(5)
        with pytest.raises(CallError, match=r"version 0\.4 is older than 0\.5"):
            trainer.state_version(4)
        trainer.state_version(3, lineage=1, resumed_from=2)

        assert server.service.state.version.lineage == 1


def test_a_call_names_the_span_that_it_belongs_to() -> None:
    """The header is that of the moment of the call; without a span there is none."""
    seen: list[str | None] = []
    spans = iter(["00-aa-bb-01", "00-aa-cc-01"])

    def note(_: str, reply: dict[str, object]) -> dict[str, object]:
        return reply

    with in_thread() as server, proxied(server.url, note, seen.append) as proxy:
        with contextlib.closing(Calls(Target(url=proxy, traceparent=lambda: next(spans)))) as calls:
            calls.get("/status")
            calls.get("/status")
        with contextlib.closing(Calls(Target(url=proxy))) as calls:
            calls.get("/status")

    assert seen == ["00-aa-bb-01", "00-aa-cc-01", None]

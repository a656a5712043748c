"""A handler against a real server: registration, pauses, tickets, retries, and what it reports."""

import contextlib
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from overwatch.catalog.services import PAUSES
from overwatch.events import Tallied
from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.calls import CallError, Calls, Target
from overwatch_rl.rollouts.client import Assignment, Group, Handler
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch
from tests.overwatch_rl.recording import KeptRun
from tests.overwatch_rl.rollouts.threaded import (
    PATIENCE_S,
    Watched,
    begin,
    consuming,
    handler_settings,
    in_thread,
    proxied,
)


def made(assignment: Assignment) -> Group:
    """A right group."""
    size = assignment.group_size
    return {"tokens": [[1, 2]] * size, "masks": [[-100, 2]] * size, "scores": [0.5] * size}


class Kept:
    """A tracker that keeps what it is given."""

    def __init__(self) -> None:
        self.started: list[tuple[str | None, str | None, str]] = []
        self.logged: list[tuple[int, Mapping[str, float]]] = []
        self.finished = 0

    def start(self, project: str | None, group: str | None, name: str) -> None:
        """Begin."""
        self.started.append((project, group, name))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Keep."""
        self.logged.append((step, values))

    def finish(self) -> None:
        """End."""
        self.finished += 1


def stopping(handler: list[Handler]) -> Callable[[], None]:
    """Stops a handler that is made later."""

    def stop() -> None:
        handler[0].stop()

    return stop


def test_a_handler_goes_from_registration_to_disconnection_beside_a_trainer() -> None:
    """Each step gets its batch at the version it asked for, the tracker its group, and both ends end."""
    with in_thread() as server, consuming(server.url, num_steps=3) as trainer:
        watched, tracker = Watched(), Kept()
        thread = threading.Thread(
            target=Handler(handler_settings(server.url), tracker, watched).run, args=(made,)
        )
        thread.start()
        batches: list[LeasedBatch] = []
        for batch in trainer.batches():
            batches.append(batch)
            trainer.state_version(len(batches))
        thread.join(PATIENCE_S)

        assert [len(batch.groups) for batch in batches] == [2, 2, 2]
        assert all(item["version_source"] == "stated" for batch in batches for item in batch.items)
        assert all(item["age"] <= 3 for batch in batches for item in batch.items)
        assert tracker.started == [("project", "group", "maths_0")]
        assert tracker.finished == 1
        assert {name for _, values in tracker.logged for name in values} >= {"queue/sequences", "group/score"}
        assert watched.kinds.count("sent") == 6
        assert (watched.kinds[0], watched.kinds[-1]) == ("registered", "disconnected")
        state = server.service.state
        assert state.envs[0].presence == "disconnected"
        assert state.account.acknowledged.groups == 6


def test_a_handler_that_is_first_waits_for_the_trainer() -> None:
    """It asks again until the trainer has asked for a batch, and reports that it waits once."""
    with in_thread() as server:
        trainer = Consumer(Target(url=server.url))
        handler: list[Handler] = []
        watched = Watched(waiting=lambda: begin(trainer), sent=stopping(handler))
        handler.append(Handler(handler_settings(server.url), happened=watched))
        handler[0].run(made)
        trainer.close()

    assert watched.kinds == ["waiting", "registered", "sent", "disconnected"]


def test_a_handler_pauses_above_one_level_and_goes_on_at_half_of_it() -> None:
    """Sequences, not groups: above 4 queued sequences it pauses, at 2 it goes on."""
    with in_thread() as server, consuming(server.url) as trainer:

        def take() -> None:
            batch = trainer.try_batch()
            assert isinstance(batch, LeasedBatch)
            trainer.acknowledge(batch)

        handler: list[Handler] = []
        watched = Watched(paused=take, resumed=stopping(handler))
        settings, run = handler_settings(server.url, off_policy_tolerance=1), KeptRun(role="handler")
        handler.append(Handler(settings, happened=watched, run=run))
        handler[0].run(made)

    assert watched.kinds == ["registered", "sent", "sent", "sent", "paused", "resumed", "disconnected"]
    run.close()
    counted = [one for event in run.of(Tallied) for one in event.series]
    sums = {(one.metric.rpartition(".")[2], *one.labels.values()): one.sum for one in counted}
    assert (sums["pauses", "maths_0"], sums["groups_sent",]) == (1, 3)
    assert {PAUSES.name} <= {one.metric for one in counted}
    assert run.link.refused == []
    assert watched.all[4].values == {"queued_sequences": 6, "threshold": 4}


def test_a_handler_without_a_free_ticket_holds_until_one_is() -> None:
    """With staleness 0 one batch is all that may be generated before the trainer has used it."""
    with in_thread(limits=Limits(retry_s=0.01)) as server, consuming(server.url, max_staleness=0) as trainer:
        handler: list[Handler] = []

        def take() -> None:
            batch = trainer.try_batch()
            assert isinstance(batch, LeasedBatch)
            trainer.state_version(1)
            trainer.acknowledge(batch)

        watched = Watched(held=take)
        handler.append(Handler(handler_settings(server.url), happened=watched))
        versions = []

        def generate(assignment: Assignment) -> Group:
            versions.append(assignment.number)
            if assignment.number == 1:
                handler[0].stop()
            return made(assignment)

        handler[0].run(generate)

    assert watched.kinds == ["registered", "sent", "sent", "held", "freed", "sent", "disconnected"]
    assert versions == [0, 0, 1]


def test_a_group_that_is_refused_is_reported_and_the_next_one_sent() -> None:
    """A NaN costs its own group; the report names the field."""
    with in_thread() as server, consuming(server.url):
        handler: list[Handler] = []
        watched = Watched(sent=stopping(handler))
        handler.append(Handler(handler_settings(server.url), happened=watched))
        scores = iter([math.nan, 1.0])
        handler[0].run(lambda assignment: {**made(assignment), "scores": [next(scores, 1.0), 1.0]})

        assert server.service.state.account.refused["invalid"].groups == 1

    assert watched.kinds == ["registered", "refused", "sent", "disconnected"]
    assert "scores[0]" in watched.all[1].message


@pytest.mark.parametrize("when", ["paused", "held"])
def test_a_handler_that_is_stopped_while_it_waits_still_disconnects(when: str) -> None:
    """Its share is free at once, and its tracker is finished."""
    with in_thread() as server, consuming(server.url, max_staleness=0 if when == "held" else 3):
        handler: list[Handler] = []
        watched, tracker = Watched(**{when: stopping(handler)}), Kept()
        tolerance = 1.0 if when == "paused" else 3.0
        settings = handler_settings(server.url, off_policy_tolerance=tolerance)
        handler.append(Handler(settings, tracker, watched))
        handler[0].run(made)

        assert server.service.state.envs[0].presence == "disconnected"

    assert watched.kinds[-2:] == [when, "disconnected"]
    assert tracker.finished == 1


def test_an_error_of_the_generating_ends_the_handler_and_disconnects_it() -> None:
    """The error is the caller's; the server does not wait for who is gone."""

    def generate(_: Assignment) -> Group:
        raise RuntimeError("out of memory")

    with in_thread() as server, consuming(server.url):
        with pytest.raises(RuntimeError, match="out of memory"):
            Handler(handler_settings(server.url)).run(generate)

        assert server.service.state.envs[0].presence == "disconnected"
        assert server.service.state.running == 0


def test_a_group_that_is_larger_than_the_server_takes_costs_itself_only() -> None:
    """413 is about the group: the next one is sent."""
    with in_thread(most_bytes=10_000) as server, consuming(server.url):
        handler: list[Handler] = []
        watched = Watched(sent=stopping(handler))
        handler.append(Handler(handler_settings(server.url), happened=watched))
        images = iter(["x" * 20_000])
        handler[0].run(lambda assignment: {**made(assignment), "images": next(images, None)})

    assert watched.kinds == ["registered", "refused", "sent", "disconnected"]


def test_a_generation_that_failed_is_no_group_and_keeps_its_ticket() -> None:
    """Nothing is sent for it, and the next try has the same permission."""
    with in_thread() as server, consuming(server.url):
        handler: list[Handler] = []
        watched = Watched(sent=stopping(handler))
        handler.append(Handler(handler_settings(server.url), happened=watched))
        tickets = []

        def generate(assignment: Assignment) -> Group | None:
            tickets.append(assignment.ticket)
            return made(assignment) if len(tickets) == 2 else None

        handler[0].run(generate)

        assert server.service.state.account.accepted.groups == 1
        assert server.service.state.running == 0

    assert tickets[0] == tickets[1]
    assert watched.kinds == ["registered", "failed", "sent", "disconnected"]


def test_a_reply_that_is_lost_doubles_nothing() -> None:
    """The group is sent again under its key, and is queued once."""
    cut = iter([True])

    def alter(path: str, reply: dict[str, Any]) -> dict[str, Any] | None:
        return None if path == "/scored_data" and next(cut, False) else reply

    with in_thread() as server, consuming(server.url), proxied(server.url, alter) as proxy:
        handler: list[Handler] = []
        watched = Watched(sent=stopping(handler))
        handler.append(Handler(handler_settings(proxy), happened=watched))
        handler[0].run(made)

        assert server.service.state.account.accepted.groups == 1

    assert watched.kinds == ["registered", "retrying", "sent", "disconnected"]


def test_a_full_queue_is_waited_for() -> None:
    """429 is tried again when the server asks for it; nothing is lost and nothing refused."""
    limits = Limits(max_queued_batches=1)
    with in_thread(limits=limits) as server, consuming(server.url) as trainer:
        handler: list[Handler] = []

        def strip(path: str, reply: dict[str, Any]) -> dict[str, Any]:
            return {
                name: value for name, value in reply.items() if name not in ("lease_s", "queued_sequences")
            }

        watched = Watched(retrying=lambda: taken.append(trainer.try_batch()))
        taken: list[object] = []

        def generate(assignment: Assignment) -> Group:
            if taken:
                handler[0].stop()
            return made(assignment)

        with proxied(server.url, strip) as proxy:
            handler.append(Handler(handler_settings(proxy), happened=watched))
            handler[0].run(generate)

        assert server.service.state.account.refused == {}
        assert watched.kinds.count("sent") == server.service.state.account.accepted.groups == 4


def test_a_server_of_the_old_wire_is_spoken_to_as_such() -> None:
    """Without leases there are no tickets; groups of its queue are taken as sequences; steps end it."""

    def strip(_: str, reply: dict[str, Any]) -> dict[str, Any]:
        new = ("lease_s", "queued_sequences", "version", "done", "unreachable", "retry_s")
        return {name: value for name, value in reply.items() if name not in new}

    with in_thread() as server, consuming(server.url, num_steps=1) as trainer:
        with proxied(server.url, strip) as proxy:

            def take() -> None:
                assert isinstance(trainer.try_batch(), LeasedBatch)

            watched = Watched(paused=take)
            settings = handler_settings(proxy, off_policy_tolerance=1)
            Handler(settings, happened=watched).run(made)

        assert {item.version_source for item in server.service.state.items.values()} == {"assumed"}

    assert watched.kinds == ["registered", "sent", "sent", "sent", "paused", "disconnected"]


def test_a_server_that_was_reset_is_registered_with_again() -> None:
    """The handler's id is unknown then: it registers anew and goes on."""
    with in_thread() as server, consuming(server.url) as trainer:
        handler: list[Handler] = []

        def reset() -> None:
            with contextlib.closing(Calls(Target(url=server.url))) as calls:
                calls.post("/reset", {"confirm": "discard everything"})
            begin(trainer)

        watched = Watched(sent=reset)
        handler.append(Handler(handler_settings(server.url), happened=watched))

        def generate(assignment: Assignment) -> Group:
            if "forgotten" in watched.kinds:
                handler[0].stop()
            return made(assignment)

        handler[0].run(generate)

        assert list(server.service.state.envs) == [1]

    assert watched.kinds == ["registered", "sent", "forgotten", "registered", "sent", "disconnected"]


def test_a_server_that_begins_again_knows_its_handlers_and_groups(tmp_path: Path) -> None:
    """After a restart from the same folder the handler goes on under its id, and its first group is there."""
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        servers = [first.enter_context(in_thread(folder=tmp_path))]
        with consuming(servers[0].url):
            pass

        def restart() -> None:
            first.close()
            servers.append(second.enter_context(in_thread(folder=tmp_path)))

        handler: list[Handler] = []
        watched = Watched(sent=restart)
        proxy = second.enter_context(proxied(lambda: servers[-1].url, lambda _, reply: reply))
        handler.append(Handler(handler_settings(proxy), happened=watched))

        def generate(assignment: Assignment) -> Group:
            if len(servers) == 2:
                handler[0].stop()
            return made(assignment)

        handler[0].run(generate)

        assert servers[1].service.state.account.accepted.groups == 2
        assert list(servers[1].service.state.envs) == [0]

    assert watched.kinds == ["registered", "sent", "sent", "disconnected"]


def test_a_handler_is_renewed_while_it_generates() -> None:
    """Two renewals come while one group is generated, though its main thread calls nothing."""
    with in_thread(limits=Limits(env_lease_s=0.3)) as server, consuming(server.url):
        handler: list[Handler] = []
        watched = Watched(sent=stopping(handler))
        handler.append(Handler(handler_settings(server.url), happened=watched))
        env = server.service.state.envs
        seen: set[int] = set()

        def generate(assignment: Assignment) -> Group:
            polls = threading.Event()
            while len(seen) < 4:
                seen.add(env[0].seen)
                polls.wait(0.005)
            return made(assignment)

        handler[0].run(generate)

    assert watched.kinds == ["registered", "sent", "disconnected"]


def test_a_handler_stops_while_its_server_is_away() -> None:
    """It waits for a server as long as it is patient, and not once it is stopped."""
    with in_thread() as server:
        url = server.url
    handler: list[Handler] = []
    watched = Watched(retrying=stopping(handler))
    handler.append(Handler(handler_settings(url), happened=watched))

    handler[0].run(made)

    assert watched.kinds == ["retrying"]


def test_a_wrong_token_ends_a_handler_at_once() -> None:
    """What another try cannot change is not tried again."""
    with in_thread(token="right" * 8) as server:
        watched = Watched()
        with pytest.raises(CallError, match="401"):
            Handler(handler_settings(server.url, token="wrong" * 8), happened=watched).run(made)

    assert watched.kinds == []


def test_settings_name_the_value_and_the_fix() -> None:
    """A size of 0 and an address without a scheme are refused before anything is called."""
    with pytest.raises(ValueError, match="poll_s is 0; use a number above 0"):
        handler_settings("http://127.0.0.1:1").__class__(url="http://x", name="m", group_size=1, poll_s=0)
    with pytest.raises(ValueError, match=r"url is '127.0.0.1:8000'; write e.g. http://127.0.0.1:8000"):
        Target(url="127.0.0.1:8000")

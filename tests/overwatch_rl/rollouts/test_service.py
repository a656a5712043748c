"""The order of the service: nothing is answered before it is safe."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future

import msgspec
import pytest

from overwatch_rl.rollouts import queue, service
from overwatch_rl.rollouts.answers import EnvRequest, Full, Offer, Outcomes
from overwatch_rl.rollouts.handlers import Call, Handlers
from overwatch_rl.rollouts.operations import Accepted, Seen, Trainer
from overwatch_rl.rollouts.service import Record, Service, UnsafeError
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.telemetry import Silent

OFFER = Offer(env_id=0, sequences=2, tokens=3, key="one")
PAYLOADS = {0: b"{}"}


class HeldStore:
    """A disk that writes when the test states it: no real one can be stopped between two requests."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.problem: str | None = None
        self.submitted: list[tuple[list[Record], Future[None]]] = []
        self.has_room = True

    def keep(self, records: Iterable[Record]) -> "Future[None]":
        """Written when `write` is called; what is not logged, at once."""
        done: Future[None] = Future()
        kept = [record for record in records if not isinstance(record[0], Seen)]
        self.payloads |= {found.id: data for found, data in kept if isinstance(found, Accepted) and data}
        if kept:
            done.set_running_or_notify_cancel()
            self.submitted.append((kept, done))
        else:
            done.set_result(None)
        return done

    def room(self, size: int) -> bool:
        """As the test sets."""
        return self.has_room and size >= 0

    def write(self) -> None:
        """All that was submitted is safe."""
        for _, done in self.submitted:
            done.set_result(None)
        self.submitted.clear()


async def started() -> tuple[Service, HeldStore]:
    """A service with a trainer and one environment, all of it safe."""
    store = HeldStore()
    made = Service(State(), store, Silent(), clock=iter(range(1, 10_000)).__next__)
    trainer = Trainer(uuid="t", batch_size=4, max_token_len=8)
    made.note(lambda state, now: queue.register_trainer(state, trainer, now))
    made.note(queue.batch)
    request = EnvRequest(desired_name="e", group_size=2)
    made.note(lambda state, now: queue.register_env(state, request, now))
    store.write()
    return made, store


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_answer_waits_until_it_is_safe() -> None:
    """Also one that repeats another which is not safe yet; what only looks does not wait."""

    async def check() -> None:
        made, store = await started()
        first = asyncio.ensure_future(made.accept([OFFER], PAYLOADS))
        await turns()
        again = asyncio.ensure_future(made.accept([OFFER], PAYLOADS))
        await turns()
        assert (first.done(), again.done()) == (False, False)
        made.note(lambda state, now: queue.status_env(state, 0, now))
        assert queue.status(made.state, made.now()).held_groups == 1
        await turns()
        assert (first.done(), again.done()) == (False, False)
        store.write()
        answers = [await first, await again]
        assert all(isinstance(answer, Outcomes) for answer in answers)
        assert answers[0].outcomes == answers[1].outcomes  # type: ignore[union-attr]

    asyncio.run(check())


def test_a_disk_that_does_not_write_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its patience the sender is answered why; what was decided stands."""
    monkeypatch.setattr(service, "PATIENCE_S", 0.01)

    async def check() -> None:
        made, store = await started()
        store.problem = "no space left on device"
        with pytest.raises(UnsafeError, match=r"not written within .* no space left on device"):
            await made.accept([OFFER], PAYLOADS)
        assert made.state.account.accepted.groups == 1
        store.write()
        assert isinstance(await made.accept([OFFER], PAYLOADS), Outcomes)
        assert made.state.account.accepted.groups == 1

    asyncio.run(check())


def test_no_room_is_the_answer_before_anything_is_decided() -> None:
    """Nothing is submitted, and a request without groups is not held up."""

    async def check() -> None:
        made, store = await started()
        store.has_room = False
        assert isinstance(await made.accept([OFFER], PAYLOADS), Full)
        assert store.submitted == []
        assert made.state.account.accepted.groups == 0

    asyncio.run(check())


def test_a_reset_does_not_take_a_batch_apart_that_is_on_its_way() -> None:
    """The reply is whole as it was decided, and its lease is over."""

    async def check() -> None:
        made, store = await started()
        for key in ("one", "two"):
            offer = msgspec.structs.replace(OFFER, key=key)
            made.note(lambda state, now, offer=offer: queue.accept(state, [offer], now), PAYLOADS)
        reply = asyncio.ensure_future(Handlers(made, dict).batch(Call(headers={"Overwatch-Lease": "1"})))
        await turns()
        made.note(queue.reset)
        store.payloads.clear()
        store.write()
        assert len((await reply).body.batch) == 2

    asyncio.run(check())

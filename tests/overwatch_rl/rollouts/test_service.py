"""The order of the service: nothing is answered before it is committed."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from overwatch_rl.rollouts import queue, service
from overwatch_rl.rollouts.answers import Offer, Source
from overwatch_rl.rollouts.service import Service, UnsafeError
from overwatch_rl.rollouts.store import AmbiguousError, Store, StoreLimits
from overwatch_rl.rollouts.telemetry import Telemetry
from overwatch_rl.rollouts.wire import Full
from overwatch_rl.web.faults import RefusedError
from tests.overwatch_rl.rollouts.driven import env_of, registration

OFFER = Offer(env_id=0, sequences=2, tokens=3, body=b"{}")
SOURCE = Source("one")


class HeldStore(Store):
    """A database that commits when the test lets it: no real one can be stopped between two requests."""

    def __init__(self, held: int = 1 << 20) -> None:
        super().__init__(StoreLimits(url="sqlite://", held_bytes=held))
        self.go_on = threading.Event()
        self.go_on.set()
        self.fault: Exception | None = None

    def transact(self, decide: Callable[[int], None]) -> None:
        """Wait, then fail or commit."""
        assert self.go_on.wait(60)
        if self.fault is not None:
            raise self.fault
        super().transact(decide)


async def started(**limits: Any) -> tuple[Service, HeldStore]:
    """A service with a trainer and one environment."""
    store = HeldStore(**limits)
    made = Service(store, Telemetry())
    await made.begin()
    await made.do(lambda state, now: queue.register_trainer(state, registration(4), now))
    await made.do(queue.batch)
    await made.do(lambda state, now: queue.register_env(state, env_of(group_size=2), now))
    return made, store


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_an_answer_waits_until_it_is_committed() -> None:
    """Also one that repeats another which is not committed yet."""

    async def check() -> None:
        made, store = await started()
        store.go_on.clear()
        calls = [asyncio.ensure_future(made.accept([OFFER], SOURCE)) for _ in range(2)]
        await turns()
        assert [call.done() for call in calls] == [False, False]
        store.go_on.set()
        first, again = await asyncio.gather(*calls)
        assert first[0].id is not None
        assert first == again
        assert made.state.account.accepted.groups == 1
        await made.close()

    asyncio.run(check())


def test_a_database_that_does_not_commit_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its patience the sender is answered why; then it did not happen, and is asked again."""
    monkeypatch.setattr(service, "PATIENCE_S", 0.5)

    async def check() -> None:
        made, store = await started()
        store.fault = OperationalError("INSERT", None, Exception("no space left on device"))
        with pytest.raises(UnsafeError, match=r"not written within .* no space left on device"):
            await made.accept([OFFER], SOURCE)
        with pytest.raises(RefusedError, match="no space left on device"):
            await made.accept([OFFER], SOURCE)
        assert made.state.account.accepted.groups == 0
        store.fault = None
        monkeypatch.setattr(service, "PATIENCE_S", 60)
        await made.do(queue.status)
        assert (await made.accept([OFFER], SOURCE))[0].id is not None
        assert made.state.account.accepted.groups == 1
        await made.close()

    asyncio.run(check())


def test_a_commit_in_doubt_is_an_answer() -> None:
    """It may have happened: the sender sends again under its key."""

    async def check() -> None:
        made, store = await started()
        store.fault = AmbiguousError("gone")
        with pytest.raises(UnsafeError, match="this may have happened or not"):
            await made.accept([OFFER], SOURCE)
        store.fault = None
        assert (await made.accept([OFFER], SOURCE))[0].id is not None
        await made.close()

    asyncio.run(check())


def test_a_fault_of_ours_costs_its_own_call() -> None:
    """The calls beside it are committed."""

    async def check() -> None:
        made, store = await started()
        store.go_on.clear()
        first = asyncio.ensure_future(made.do(queue.status))
        await turns()
        wrong = asyncio.ensure_future(made.do(lambda state, _: state.envs[9]))
        right = asyncio.ensure_future(made.accept([OFFER], SOURCE))
        await turns()
        store.go_on.set()
        found = await asyncio.gather(first, wrong, right, return_exceptions=True)
        assert [type(one).__name__ for one in found] == ["Status", "KeyError", "tuple"]
        assert made.state.account.accepted.groups == 1
        await made.close()

    asyncio.run(check())


def test_no_room_is_the_answer_before_anything_is_decided() -> None:
    """Nothing is written."""

    async def check() -> None:
        made, _ = await started(held=1)
        with pytest.raises(RefusedError) as caught:
            await made.accept([OFFER], SOURCE)
        assert isinstance(caught.value.body, Full)
        assert made.state.account.accepted.groups == 0
        await made.close()

    asyncio.run(check())

"""The rollouts server killed under load: what was acknowledged is used, leased or queued, exactly.

The last life ends well; then the folder is read as the next life would read it.
"""

from pathlib import Path

import pytest

from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import Store, StoreLimits, sqlite_url
from tests.e2e.rollouts_killing import (
    Caller,
    ExplicitTrainer,
    Got,
    Handler,
    ImplicitTrainer,
    RolloutsServer,
    Servers,
    kill_over_and_over,
)
from tests.overwatch_rl.orchestrator.postgres import postgres

HANDLERS = 3


def kept(url: str) -> tuple[State, dict[int, bytes]]:
    """The queue that a database holds, and the bytes of its groups."""
    store = Store(StoreLimits(url=url))
    bodies: dict[int, bytes] = {}
    store.transact(lambda _: bodies.update(store.read(list(store.state.items))))
    store.close()
    return store.state, bodies


def survive(
    url: str, trainer: ExplicitTrainer | ImplicitTrainer, server: RolloutsServer | Servers, cycles: int
) -> State:
    """Kill so often under load, and hold all that was answered against all that was kept."""
    handlers = [Handler(number, server) for number in range(1, HANDLERS + 1)]
    callers: list[Caller] = [*handlers, trainer]
    kill_over_and_over(server, callers, cycles)
    server.stop()
    assert "Traceback" not in server.log

    state, payloads = kept(url)
    acknowledged = {found: text for handler in handlers for found, text in handler.accepted.items()}
    left = set(state.items)
    account = state.account
    # Each acknowledged group is one group, and nothing else was taken in.
    assert len(acknowledged) == sum(len(handler.accepted) for handler in handlers)
    assert account.accepted.groups == len(acknowledged)
    assert account.refused["invalid"].groups == sum(handler.refused for handler in handlers)
    assert account.expired == {}
    # accepted = used + leased + queued
    here = account.leased.groups + account.queued.groups
    assert account.accepted.groups == account.acknowledged.groups + here
    assert len(left) == here
    assert left <= acknowledged.keys()
    assert payloads.keys() == left
    got: Got = trainer.got
    assert {found: acknowledged[found] for found in got.groups} == got.groups
    assert got.unflagged == []
    used = acknowledged.keys() - left
    assert used <= got.groups.keys()
    print(
        f"{server.lives} lives: {len(acknowledged)} groups = {len(used)} used + {account.leased.groups} "
        f"leased + {account.queued.groups} queued; {account.refused['invalid'].groups} refused; "
        f"{sum(number - 1 for number in got.deliveries.values())} delivered again, all flagged"
    )
    assert used
    return state


@pytest.mark.timeout(600)
def test_sixteen_kills_cost_nothing(tmp_path: Path) -> None:
    """A trainer that acknowledges: what it used is never given again, and all else is still there."""
    server = RolloutsServer(tmp_path / "kept")
    trainer = ExplicitTrainer(server)

    state = survive(sqlite_url(tmp_path / "kept"), trainer, server, 16)

    assert trainer.used.isdisjoint(state.items)
    assert len(trainer.used) == state.account.acknowledged.groups


@pytest.mark.timeout(600)
def test_six_kills_cost_an_old_trainer_nothing(tmp_path: Path) -> None:
    """A trainer that never acknowledges: what counts as used had come whole."""
    server = RolloutsServer(tmp_path / "kept")

    survive(sqlite_url(tmp_path / "kept"), ImplicitTrainer(server), server, 6)


@pytest.mark.timeout(900)
def test_kills_of_three_servers_and_their_database_cost_nothing(tmp_path: Path) -> None:
    """Any of them takes any request: nothing is lost, nothing is served twice."""
    with postgres() as database:
        servers = Servers(tmp_path, database, 3)
        trainer = ExplicitTrainer(servers)

        state = survive(database.url, trainer, servers, 12)

    assert trainer.used.isdisjoint(state.items)
    assert len(trainer.used) == state.account.acknowledged.groups


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_explicit", [True, False])
def test_three_hundred_kills_cost_nothing(tmp_path: Path, is_explicit: bool) -> None:  # noqa: FBT001 a column
    """The same, longer, in one folder."""
    server = RolloutsServer(tmp_path / "kept")
    trainer = ExplicitTrainer(server) if is_explicit else ImplicitTrainer(server)

    survive(sqlite_url(tmp_path / "kept"), trainer, server, 300)

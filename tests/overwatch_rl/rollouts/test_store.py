"""The queue in a database: restarts, servers beside each other, disks and databases that refuse."""

import threading
from collections.abc import Mapping
from pathlib import Path
from random import Random

import msgspec
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Limits, Offer
from overwatch_rl.rollouts.state import Env, State
from overwatch_rl.rollouts.store import AmbiguousError, Store, StoreLimits, sqlite_url
from overwatch_rl.rollouts.wire import PolicyVersion, VersionMove
from tests.overwatch_rl.orchestrator.postgres import Postgres
from tests.overwatch_rl.rollouts.driven import Batch, Driven, body_of, check, env_of, leased, registration

MANY = Limits(max_queued_batches=10_000, max_returns=10_000)
SERVERS = 3
OFFER = Offer(env_id=0, sequences=4, tokens=4, body=b"group")


def store_of(url: str) -> Store:
    """A server's part of a queue."""
    return Store(StoreLimits(url=url), MANY)


def bodies_of(store: Store) -> Mapping[int, bytes]:
    """Those that the database has."""
    found: dict[int, bytes] = {}
    store.transact(lambda _: found.update(store.read(list(store.state.items))))
    return found


def envs_of(state: State) -> dict[int, Env]:
    """Environments without when they were last seen, which is written now and then."""
    return {env_id: msgspec.structs.replace(env, seen=0) for env_id, env in state.envs.items()}


def play(driven: Driven, envs: list[int], steps: int, chance: Random) -> None:
    """Whatever may happen to a queue, at random; what it holds stays about the same."""
    for _ in range(steps):
        driven.now += chance.randrange(1, 10**9)
        is_rich = driven.state.account.queued.sequences > 100
        match chance.randrange(8):
            case 0 | 1 | 2 | 3 if not is_rich:
                place = chance.randrange(2)
                driven.send(envs[place], chance.randrange(1, 4), (4, 2)[place])
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                batch = driven.batch(is_explicit=chance.random() < 0.8)
                if isinstance(batch, Batch) and batch.is_explicit:
                    end = (queue.acknowledge, queue.acknowledge, queue.release)[chance.randrange(3)]
                    driven.do(end(driven.state, batch.lease, driven.now))
            case _:
                driven.states(driven.state.version.number + 1)


def test_the_next_life_begins_where_the_last_one_ended(database: str) -> None:
    """State and bodies are equal, life after life."""
    driven = Driven(store=store_of(database))
    driven.trainer()
    envs = [driven.env(), driven.env(group_size=2, name="other")]
    for turn in range(3):
        play(driven, envs, 60, Random(turn))  # noqa: S311
        assert driven.store is not None
        driven.store.close()
        before, now = driven.state, driven.now
        driven = Driven(store=store_of(database))
        driven.now, state = now, driven.state
        for table in ("head", "items", "tickets", "late", "leases", "ended", "keys"):
            assert getattr(state, table) == getattr(before, table)
        assert envs_of(state) == envs_of(before)
        assert driven.store is not None
        assert bodies_of(driven.store) == {item: body_of(item) for item in state.items}
        assert state.head.held_bytes == sum(len(body_of(item)) for item in state.items)
    assert driven.store is not None
    driven.store.close()


def begin(store: Store) -> None:
    """A trainer of batches of 8, and an environment."""

    def decide(now: int) -> None:
        queue.register_trainer(store.state, registration(), now)
        queue.batch(store.state, now)
        queue.register_env(store.state, env_of(), now)

    store.transact(decide)


class Serving(threading.Thread):
    """A server that takes groups in, leases batches, and has them used or given back."""

    def __init__(self, url: str, seed: int, turns: int) -> None:
        super().__init__()
        self.store = store_of(url)
        self.sent: list[int] = []
        self.used: list[int] = []
        self._chance = Random(seed)  # noqa: S311
        self._turns = turns

    def run(self) -> None:
        """Take its turns."""
        for _ in range(self._turns):
            self.store.transact(self._turn)

    def _turn(self, now: int) -> None:
        state = self.store.state
        outcomes = queue.accept(state, [OFFER] * 2, now)
        self.sent += [outcome.id for outcome in outcomes if outcome.id is not None]
        batch = leased(state, now)
        if isinstance(batch, Batch) and self._chance.random() < 0.7:
            assert len(self.store.read([item.id for item in batch.items])) == len(batch.items)
            queue.acknowledge(state, batch.lease, now)
            self.used += [item.id for item in batch.items]
        elif isinstance(batch, Batch):
            queue.release(state, batch.lease, now)


def test_servers_of_one_database_lose_nothing_and_serve_nothing_twice(postgresql: str) -> None:
    """Each decides over what the others committed, in turns."""
    first = store_of(postgresql)
    begin(first)
    servers = [Serving(postgresql, seed, 40) for seed in range(SERVERS)]
    for server in servers:
        server.start()
    for server in servers:
        server.join(120)
    sent = [item for server in servers for item in server.sent]
    used = [item for server in servers for item in server.used]
    first.transact(lambda _: check(first.state))

    assert len(sent) == len(set(sent)) == SERVERS * 40 * 2
    assert len(used) == len(set(used)) > 0
    assert set(first.state.items) == set(sent) - set(used)
    assert bodies_of(first).keys() == first.state.items.keys()
    for store in (first, *(server.store for server in servers)):
        store.close()


def test_one_server_has_a_file(tmp_path: Path) -> None:
    """The second one is refused; the first goes on."""
    driven = Driven(store=store_of(sqlite_url(tmp_path)))
    with pytest.raises(OperationalError, match="database is locked"):
        store_of(sqlite_url(tmp_path))
    driven.trainer()
    assert driven.store is not None
    driven.store.close()


def test_what_the_disk_refuses_did_not_happen(tmp_path: Path) -> None:
    """A full disk: the state is as before, and once there is room everything goes on."""
    store = store_of(sqlite_url(tmp_path))
    begin(store)
    offers = [msgspec.structs.replace(OFFER, body=bytes(1 << 20))]

    def send() -> None:
        store.transact(lambda now: queue.accept(store.state, offers, now))

    send()
    before = dict(store.state.items)
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")
    for _ in range(2):
        with pytest.raises(SQLAlchemyError, match="disk is full"):
            send()
    store.transact(lambda _: None)
    assert store.state.items == before
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    send()
    assert len(store.state.items) == 2
    store.close()


def test_a_database_that_crashes_loses_nothing_that_was_committed(server: Postgres, postgresql: str) -> None:
    """While it is away nothing is decided; then everything goes on."""
    store = store_of(postgresql)
    begin(store)

    def send(body: bytes) -> None:
        offer = msgspec.structs.replace(OFFER, body=body)
        store.transact(lambda now: queue.accept(store.state, [offer], now))

    send(b"kept")
    server.stop("immediate")
    try:
        with pytest.raises(SQLAlchemyError):
            send(b"lost")
    finally:
        server.start()
    send(b"new")
    assert sorted(bodies_of(store).values()) == [b"kept", b"new"]
    check(store.state)
    store.close()


def test_a_commit_that_breaks_off_is_in_doubt(server: Postgres, postgresql: str) -> None:
    """Nobody knows whether it happened; the next one begins with what the database has."""
    store = store_of(postgresql)
    begin(store)
    event.listen(store._engine, "commit", lambda _: server.stop("immediate"), once=True)
    try:
        with pytest.raises(AmbiguousError):
            store.transact(lambda now: queue.move_version(store.state, VersionMove(number=5), now))
    finally:
        server.start()
    store.transact(lambda _: None)
    assert store.state.version in (PolicyVersion(number=5), PolicyVersion(number=0))
    store.close()

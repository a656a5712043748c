"""Whatever is asked in whatever order: sums hold, and what is read from the database is the state."""

import contextlib
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import NO_SOURCE, Limits, Offer, Outcome, Source
from overwatch_rl.rollouts.state import Env
from overwatch_rl.rollouts.store import Level, Store, StoreLimits, sqlite_url
from overwatch_rl.rollouts.wire import Admission, EnvIdentifier, Full, PolicyVersion
from overwatch_rl.web.faults import Fault, RefusedError
from tests.overwatch_rl.rollouts.driven import RESET, Batch, Driven, leased, registration

LIMITS = Limits(max_staleness=1, max_queued_batches=6)
SENT = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def unseen(envs: dict[int, Env]) -> dict[int, Env]:
    """Environments without when they were last seen, which is written now and then."""
    return {env_id: msgspec.structs.replace(env, seen=0) for env_id, env in envs.items()}


class Calls(RuleBasedStateMachine):
    """Any calls in any order, with time passing between them."""

    tickets = Bundle("tickets")
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        limits = StoreLimits(url=sqlite_url(Path(self._folder.name)), level=Level.FAST)
        self._open = lambda: Store(limits, LIMITS)
        self.driven = Driven(store=self._open())
        self.kept: dict[str, tuple[Outcome, ...]] = {}

    @initialize(batch=st.sampled_from([4, 8, 12]), steps=st.sampled_from([None, 3]))
    def begin(self, batch: int, steps: int | None) -> None:
        """A trainer that has asked once, and one environment."""
        self.driven.trainer(batch, num_steps=steps)
        self.driven.env()

    @rule(size=st.integers(1, 5), weight=st.sampled_from([0.5, 1.0, 3.0]), minimum=st.sampled_from([0, 0.4]))
    def register_env(self, size: int, weight: float, minimum: float) -> None:
        """An environment comes."""
        if self.driven.state.trainer is not None:
            self.driven.env(size, weight, minimum)

    @rule(batch=st.sampled_from([4, 8]))
    def register_trainer(self, batch: int) -> None:
        """A trainer begins a new life."""
        self.driven.do(queue.register_trainer(self.driven.state, registration(batch), self.driven.now))
        assert not any(not lease.is_explicit for lease in self.driven.state.leases.values())

    @rule(target=tickets, which=st.integers(0, 6), groups=st.integers(1, 5))
    def admit(self, which: int, groups: int) -> object:
        """Tickets are asked for; never more than permitted."""
        driven, state = self.driven, self.driven.state
        try:
            answer = driven.do(queue.admit(state, Admission(env_id=which, groups=groups), driven.now))
        except RefusedError:
            assert which not in state.envs
            return multiple()
        return multiple(*((which, ticket) for ticket in answer.tickets))

    @rule(which=st.integers(-1, 6), sizes=SENT, number=st.none() | st.integers(0, 6), invalid=st.booleans())
    def send(self, which: int, sizes: list[int], number: int | None, invalid: bool) -> None:  # noqa: FBT001
        """Groups of any size and version come, from anybody."""
        version = None if number is None else PolicyVersion(number=number)
        offers = [Offer(env_id=which, sequences=size, tokens=size, version=version) for size in sizes]
        offers[0] = msgspec.structs.replace(offers[0], fault=Fault("", "wrong") if invalid else None)
        self._send(offers)

    @rule(of=consumes(tickets))
    def send_ticketed(self, of: tuple[int, int]) -> None:
        """A group comes on its ticket, in time or late."""
        env_id, ticket = of
        self._send([Offer(env_id=env_id, sequences=4, tokens=4, ticket=ticket)])

    @rule(sizes=SENT, key=st.sampled_from(["a", "b"]))
    def send_with_key(self, sizes: list[int], key: str) -> None:
        """A key that is remembered gets its first answer, unless it comes with another body."""
        env_id = min(self.driven.state.envs, default=0)
        offers = [Offer(env_id=env_id, sequences=size, tokens=1) for size in sizes]
        name, is_known = f"{env_id}/{key}", f"{env_id}/{key}" in self.driven.state.keys
        answer = self._send(offers, Source(key, f"{sizes}"))
        if answer is not None:
            assert not is_known or self.kept[name] == answer
            self.kept[name] = answer

    def _send(self, offers: list[Offer], source: Source = NO_SOURCE) -> tuple[Outcome, ...] | None:
        driven = self.driven
        try:
            outcomes = driven.do(queue.accept(driven.state, offers, driven.now, source))
        except RefusedError as error:
            if isinstance(error.body, Full):
                limit = LIMITS.max_queued_batches * driven.state.batch_size
                assert driven.state.account.queued.sequences >= limit
            return None
        assert len(outcomes) == len(offers)
        assert all((outcome.id is None) != (outcome.reason is None) for outcome in outcomes)
        return outcomes

    @rule(target=leases, is_explicit=st.booleans())
    def batch(self, is_explicit: bool) -> object:  # noqa: FBT001
        """A batch has exactly its sequences, and nothing that is too old."""
        driven, state = self.driven, self.driven.state
        answer = driven.do(leased(state, driven.now, is_explicit=is_explicit))
        if not isinstance(answer, Batch):
            return multiple()
        assert sum(item.sequences for item in answer.items) == state.batch_size
        assert all(
            item.age <= LIMITS.max_staleness for item in answer.items if item.version_source == "stated"
        )
        for item in answer.items:
            assert item.is_redelivered == (state.items[item.id].deliveries > 0)
        return answer.lease

    @rule(lease=leases, how=st.sampled_from(["delivered", "broken", "acknowledge", "release", "extend"]))
    def settle(self, lease: int, how: str) -> None:
        """A lease is settled, once or again."""
        state, now = self.driven.state, self.driven.now
        with contextlib.suppress(RefusedError):  # forgotten: it ended long ago
            if how == "extend":
                self.driven.do(queue.extend(state, lease, 500, now))
            else:
                self.driven.do(getattr(queue, how)(state, lease, now))

    @rule(number=st.integers(0, 6), lineage=st.integers(0, 1), resumed=st.none() | st.integers(0, 4))
    def move_version(self, number: int, lineage: int, resumed: int | None) -> None:
        """The trainer states a version; an older one than before changes nothing."""
        before = self.driven.state.version, self.driven.state.head.is_version_stated
        with contextlib.suppress(RefusedError):
            self.driven.states(number, lineage, resumed)
        after = self.driven.state.version
        if before[1]:
            assert (after.lineage, after.number) >= (before[0].lineage, before[0].number)

    @rule(which=st.integers(-1, 6), leaves=st.booleans())
    def look(self, which: int, leaves: bool) -> None:  # noqa: FBT001
        """An environment asks for the status, or leaves."""
        state, now = self.driven.state, self.driven.now
        with contextlib.suppress(RefusedError):
            if leaves:
                self.driven.do(queue.disconnect_env(state, EnvIdentifier(env_id=which), now))
            else:
                self.driven.do(queue.status_env(state, which, now))

    @rule(seconds=st.sampled_from([1, 40, 130, 700]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.driven.wait(seconds)

    @rule()
    def restart(self) -> None:
        """The server ends, and the next one begins with what the database has."""
        before = self.driven.do(self.driven.state)  # what a rejected call renewed is committed too
        assert self.driven.store is not None
        self.driven.store.close()
        now, self.driven = self.driven.now, Driven(store=self._open())
        self.driven.now, state = now, self.driven.state
        for table in ("items", "tickets", "late", "leases", "ended", "keys"):
            assert getattr(state, table) == getattr(before, table)
        assert state.head == before.head
        assert unseen(state.envs) == unseen(before.envs)
        queue.restarted(state, self.driven.now)
        self.driven.do(None)
        assert not any(not held.is_explicit and not held.is_delivered for held in state.leases.values())

    @precondition(lambda self: len(self.driven.state.items) > 20)
    @rule()
    def reset(self) -> None:
        """Everything is forgotten but the totals."""
        accepted = self.driven.state.account.accepted.groups
        self.driven.do(queue.reset(self.driven.state, RESET, self.driven.now))
        assert self.driven.state.account.accepted.groups == accepted
        assert not self.driven.state.items
        self.kept = {}
        self.driven.trainer(8)
        self.driven.env()

    @invariant()
    def shares_are_parts(self) -> None:
        """Shares of present environments add up to a batch."""
        shares = queue.shares(self.driven.state)
        assert not shares or abs(sum(shares.values()) - 1) < 1e-9

    def teardown(self) -> None:
        """Close the file."""
        assert self.driven.store is not None
        self.driven.store.close()
        self._folder.cleanup()


@pytest.mark.long
def test_many_calls_in_any_order() -> None:
    """As `TestCalls`, ten times as long."""
    run_state_machine_as_test(
        Calls, settings=settings(max_examples=500, stateful_step_count=80, deadline=None)
    )


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)

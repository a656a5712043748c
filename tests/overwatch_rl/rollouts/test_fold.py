"""The state is a fold of operations: whatever is done, sums hold and a replay gives the same state."""

import copy
from dataclasses import replace

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
from overwatch_rl.rollouts.answers import Batch, EnvRequest, Full, Limits, Offer, Outcomes, Tickets
from overwatch_rl.rollouts.operations import Operation, Snapshot, Trainer, Version
from overwatch_rl.rollouts.state import State
from tests.overwatch_rl.rollouts.driven import Driven

LIMITS = Limits(max_staleness=1, max_queued_batches=6)
SENT = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def replayed(log: list[Operation]) -> State:
    """The state that a log gives."""
    state = State(limits=LIMITS)
    for operation in log:
        queue.apply(state, operation)
    return state


def logged_part(state: State) -> State:
    """A state without what is never logged: who was seen when, was answered what, and waits."""
    envs = {
        env_id: msgspec.structs.replace(env, seen=0, answered=None, account=copy.deepcopy(env.account))
        for env_id, env in state.envs.items()
    }
    return replace(state, envs=envs, waiting={})


class Calls(RuleBasedStateMachine):
    """Any calls in any order, with time passing between them."""

    tickets = Bundle("tickets")
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.driven = Driven(LIMITS)
        self.kept: dict[str, tuple[int | None, ...]] = {}

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
        trainer = Trainer(uuid="again", batch_size=batch, max_token_len=64)
        self.driven.do(queue.register_trainer(self.driven.state, trainer, self.driven.now))
        assert not any(not lease.is_explicit for lease in self.driven.state.leases.values())

    @rule(target=tickets, which=st.integers(0, 6), groups=st.integers(1, 5))
    def admit(self, which: int, groups: int) -> object:
        """Tickets are asked for; never more than permitted."""
        driven, state = self.driven, self.driven.state
        answer = driven.do(queue.admit(state, which, groups, driven.now))
        if not isinstance(answer, Tickets):
            assert which not in state.envs
            return multiple()
        return multiple(*((which, ticket) for ticket in answer.tickets))

    @rule(which=st.integers(-1, 6), sizes=SENT, number=st.none() | st.integers(0, 6), invalid=st.booleans())
    def send(self, which: int, sizes: list[int], number: int | None, invalid: bool) -> None:  # noqa: FBT001
        """Groups of any size and version come, from anybody."""
        version = None if number is None else Version(number=number)
        offers = [Offer(env_id=which, sequences=size, tokens=size, version=version) for size in sizes]
        offers[0] = msgspec.structs.replace(offers[0], is_invalid=invalid)
        self._send(offers)

    @rule(of=consumes(tickets))
    def send_ticketed(self, of: tuple[int, int]) -> None:
        """A group comes on its ticket, in time or late."""
        env_id, ticket = of
        self._send([Offer(env_id=env_id, sequences=4, tokens=4, ticket=ticket)])

    @rule(sizes=SENT, key=st.sampled_from(["a", "b"]))
    def send_with_key(self, sizes: list[int], key: str) -> None:
        """A repeated key gets the first answer for each place."""
        offers = [
            Offer(
                env_id=min(self.driven.state.envs, default=0), sequences=size, tokens=1, key=key, index=index
            )
            for index, size in enumerate(sizes)
        ]
        key = f"{offers[0].env_id} {key}"
        answer = self._send(offers)
        if isinstance(answer, Outcomes):
            found = tuple(outcome.id for outcome in answer.outcomes)
            first = self.kept.get(key, ())
            both = min(len(first), len(found))
            assert found[:both] == first[:both]
            self.kept[key] = max(first, found, key=len)

    def _send(self, offers: list[Offer]) -> object:
        answer = self.driven.do(queue.accept(self.driven.state, offers, self.driven.now))
        if isinstance(answer, Outcomes):
            assert len(answer.outcomes) == len(offers)
            assert all((outcome.id is None) != (outcome.reason is None) for outcome in answer.outcomes)
        if isinstance(answer, Full):
            limit = LIMITS.max_queued_batches * self.driven.state.batch_size
            assert self.driven.state.account.queued.sequences >= limit
        return answer

    @rule(target=leases, is_explicit=st.booleans())
    def batch(self, is_explicit: bool) -> object:  # noqa: FBT001
        """A batch has exactly its sequences, and nothing that is too old."""
        driven, state = self.driven, self.driven.state
        answer = driven.do(queue.batch(state, driven.now, is_explicit=is_explicit))
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
        if how == "extend":
            self.driven.do(queue.extend(state, lease, 500, now))
        else:
            self.driven.do(getattr(queue, how)(state, lease, now))

    @rule(number=st.integers(0, 6), lineage=st.integers(0, 1), resumed=st.none() | st.integers(0, 4))
    def move_version(self, number: int, lineage: int, resumed: int | None) -> None:
        """The trainer states a version; an older one than before changes nothing."""
        before = self.driven.state.version, self.driven.state.is_version_stated
        self.driven.states(number, lineage, resumed)
        after = self.driven.state.version
        if before[1]:
            assert (after.lineage, after.number) >= (before[0].lineage, before[0].number)

    @rule(which=st.integers(-1, 6), leaves=st.booleans())
    def look(self, which: int, leaves: bool) -> None:  # noqa: FBT001
        """An environment asks for the status, or leaves."""
        decide = queue.disconnect_env if leaves else queue.status_env
        self.driven.do(decide(self.driven.state, which, self.driven.now))

    @rule(seconds=st.sampled_from([1, 40, 130, 700]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.driven.wait(seconds)

    @rule()
    def restart(self) -> None:
        """The server ends and begins again from its log."""
        state = replayed([operation for operation in self.driven.log if queue.is_logged(operation)])
        assert logged_part(state) == logged_part(self.driven.state)
        self.driven.state = state
        self.driven.do(queue.restarted(state, self.driven.now))
        assert not any(not held.is_explicit and not held.is_delivered for held in state.leases.values())

    @rule()
    def begin_segment(self) -> None:
        """A snapshot, written and read, is the state."""
        saved = queue.snapshot(self.driven.state, self.driven.now)
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(saved), type=Operation)
        assert isinstance(read, Snapshot)
        self.driven.state = replace(replayed([read]), waiting=self.driven.state.waiting)
        self.driven.log.append(saved)

    @precondition(lambda self: len(self.driven.log) > 80)
    @rule()
    def reset(self) -> None:
        """Everything is forgotten but the totals."""
        accepted = self.driven.state.account.accepted.groups
        self.driven.do(queue.reset(self.driven.state, self.driven.now))
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
        """What was logged between snapshots gives the same state; so does everything that was applied."""
        assert logged_part(replayed(self.driven.log)) == logged_part(self.driven.state)


@pytest.mark.long
def test_many_calls_in_any_order() -> None:
    """As `TestCalls`, ten times as long."""
    run_state_machine_as_test(
        Calls, settings=settings(max_examples=500, stateful_step_count=80, deadline=None)
    )


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_a_request_weighs_one_decision() -> None:
    """Deciding changes nothing: the state is as before until its operations are applied."""
    driven = Driven()
    driven.trainer()
    env = driven.env()
    before = copy.deepcopy(driven.state)

    queue.accept(driven.state, [Offer(env_id=env, sequences=4, tokens=4)], driven.now)
    queue.admit(driven.state, env, 4, driven.now)
    queue.batch(driven.state, driven.now)
    queue.register_env(driven.state, EnvRequest(desired_name="env", group_size=4), driven.now)
    queue.sweep(driven.state, driven.now + 10**15)

    assert driven.state == before

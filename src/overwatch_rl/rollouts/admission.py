"""Who may generate, and what is taken in.

Owns tickets and acceptance. New sequences are permitted as far as

    (max_staleness + version + 1) x batch - (accepted + running)

where a version is a batch, so that what is generated now is served before it is too old. It is computed from
what is outstanding, so that groups that expired and a trainer that resumed at another number leave it right.
Refusing comes last: a group with a ticket that lives is never stale, an assumed version never refused.
Must not know how batches are assembled.
"""

import heapq
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from overwatch_rl.rollouts.answers import (
    ANONYMOUS,
    NO_SOURCE,
    Amount,
    Offer,
    Outcome,
    Outcomes,
    Refusal,
    Source,
    VersionSource,
)
from overwatch_rl.rollouts.shares import bounded_sums, known, present, sums, unreachable
from overwatch_rl.rollouts.state import MAX_KEYS, NS, Answered, Env, Item, State, Ticket, Waiting
from overwatch_rl.rollouts.wire import Admission, EnvRegistration, Full, PolicyVersion, Tickets
from overwatch_rl.web.faults import RefusedError

KEY: Final = "Idempotency-Key"
"""Header of a request that may be sent again: the first answer is repeated."""
TICKET_TIMES: Final = 4
"""A ticket lives so many times as long as its environment's groups take in the median."""


def overdue(state: State, now: int) -> tuple[int, ...]:
    """Tickets whose time is over."""
    return tuple(ticket.id for ticket in state.tickets.values() if ticket.expires_at <= now)


def is_done(state: State) -> bool:
    """Whether the trainer has, or has used, the batches of all its steps."""
    return state.num_steps is not None and state.step >= state.num_steps


def permits(state: State, running: int) -> int:
    """Sequences that tickets may be issued for, where `running` are being generated."""
    trainer = state.trainer
    if trainer is None:
        return 0
    outstanding = state.held + running
    free = (state.max_staleness + 1 - max(0, state.head.behind)) * trainer.batch_size - outstanding
    if state.num_steps is not None:
        steps = max(0, state.num_steps - trainer.starting_step - state.head.batches)
        free = min(free, steps * trainer.batch_size - outstanding)
    return max(0, free)


def _to_free(state: State, running: int) -> int:
    """Sequences beyond the permits where what is queued makes no batch and no environment generates.

    Groups that came without a ticket may have filled the queue with sizes that do not add up.
    """
    most = (state.max_staleness + 2) * state.batch_size
    if running or state.leases or not state.lanes or is_done(state):
        return 0
    is_batch = bounded_sums(state.sizes(), state.batch_size) >> state.batch_size & 1
    return 0 if is_batch else max(0, most - state.held)


def admit(state: State, body: Admission, now: int) -> Tickets:
    """Tickets: permissions to generate, so that nothing is too old when it is served.

    Fewer than asked for where permits lack, or where another's turn comes first.
    """
    env_id, groups = body.env_id, body.groups
    known(state, env_id)
    state.see(env_id, now, is_answered=True)
    state.expire_tickets(overdue(state, now))
    request = Waiting(env_id=env_id, groups=groups, until=now)
    granted = _granted(state, request)
    tickets = [state.next_id() for _ in range(granted)]
    lifetime = _lifetime(state, env_id)
    for ticket in tickets:
        state.tickets[ticket] = Ticket(
            id=ticket,
            env_id=env_id,
            at=now,
            sequences=state.envs[env_id].registered.group_size,
            version=state.version,
            expires_at=now + lifetime,
        )
    if granted < groups:
        if env_id not in state.waiting:
            state.count("pauses", env=state.name_of(env_id))
        until = now + int(2 * state.limits.retry_s * NS)
        state.waiting[env_id] = request._replace(groups=groups - granted, until=until)
    else:
        state.waiting.pop(env_id, None)
    return Tickets(
        tickets=tickets,
        version=state.version,
        expires_in_s=lifetime / NS if tickets else None,
        retry_s=state.limits.retry_s,
        done=is_done(state),
    )


def _lifetime(state: State, env_id: int) -> int:
    durations = state.envs[env_id].durations
    typical = TICKET_TIMES * statistics.median(durations) if durations else 0
    return int(max(typical, state.limits.ticket_s * NS))


def _granted(state: State, requested: Waiting) -> int:
    """Groups that the asking one gets when all that wait are served in the order of their shares.

    The next is always the one with the least sequences by weight: served, queued and running.
    """
    outstanding = Counter[int]()
    for ticket in state.tickets.values():
        outstanding[ticket.env_id] += ticket.sequences
    here = present(state, requested.env_id)
    waiting = [
        found for found in state.waiting.values() if found.until > requested.until and found.env_id in here
    ]
    requesting = {found.env_id: found.groups for found in [*waiting, requested]}
    line: list[tuple[float, int]] = []
    for env_id in requesting:
        env = state.envs[env_id]
        sequences = outstanding[env_id] + env.account.queued.sequences
        line.append((max(env.virtual, state.head.virtual) + sequences / env.weight, env_id))
    sizes = {env.registered.group_size for env in here.values()}
    granted = _shared_out(state, line, requesting, permits(state, outstanding.total()), sizes)
    if not granted:
        granted = _shared_out(state, line, requesting, _to_free(state, outstanding.total()), sizes)
    return granted[requested.env_id]


def _shared_out(
    state: State, line: list[tuple[float, int]], requesting: dict[int, int], free: int, sizes: set[int]
) -> Counter[int]:
    """Groups for each that asks, the one served least first, until nothing is free."""
    line, granted = sorted(line), Counter[int]()
    while line and free > 0:
        tag, env_id = heapq.heappop(line)
        size = state.envs[env_id].registered.group_size
        if granted[env_id] == requesting[env_id] or not _fits(state, size, free, sizes):
            continue
        free -= size
        granted[env_id] += 1
        heapq.heappush(line, (tag + size / state.envs[env_id].weight, env_id))
    return +granted


def _fits(state: State, size: int, free: int, sizes: Iterable[int]) -> bool:
    """Whether the batch that is being filled can still be completed after a group of this size."""
    if unreachable(state, size):
        return False
    left = free % state.batch_size or state.batch_size
    reachable = sums(sizes, left)
    if not reachable >> left & 1:
        return True
    return size <= left and bool(reachable >> (left - size) & 1)


def accept(state: State, offers: Sequence[Offer], now: int, source: Source = NO_SOURCE) -> Outcomes:
    """Take the groups of one request, all of one environment.

    A request whose key is known gets its first answer again. Raise `RefusedError` where nothing is taken.
    """
    env_id = offers[0].env_id if offers else ANONYMOUS
    if env_id == ANONYMOUS and state.trainer is not None and env_id not in state.envs:
        anonymous = EnvRegistration(desired_name="anonymous", group_size=1, max_token_length=0)
        state.envs[env_id] = Env(name="anonymous", registered=anonymous, virtual=state.head.virtual)
    known(state, env_id)
    state.see(env_id, now)
    key = None if source.key is None else f"{env_id}/{source.key}"
    first = None if key is None else state.keys.get(key)
    if first is not None:
        if first.digest != source.digest:
            message = f"{source.key!r} came before with another body; send a new key with each new request"
            raise RefusedError(f"{KEY}: {message}", KEY)
        return first.outcomes
    queued = state.account.queued
    is_full = queued.sequences >= state.limits.max_queued_batches * state.batch_size
    if is_full and any(_ticket(state, offer) is None for offer in offers):
        for offer in offers:
            state.count_refused("full", offer)
        state.count("pauses", env=state.name_of(env_id))
        raise full(state)
    outcomes = tuple(_take(state, offer, now, source.traceparent) for offer in offers)
    if key is not None:
        state.keys[key] = Answered(at=now, digest=source.digest, outcomes=outcomes)
        state.keys.bound(MAX_KEYS)
    return outcomes


def full(state: State, problem: str | None = None) -> RefusedError:
    """No room for more groups; `problem` is what the database has against them."""
    queued, retry_s = state.account.queued, state.limits.retry_s
    why = (
        f"the database cannot be written ({problem})" if problem else f"the queue has {queued.groups} groups"
    )
    error = f"{why}; send this again in {retry_s:g} s"
    body = Full(error=error, queue_size=queued.groups, queued_sequences=queued.sequences, retry_s=retry_s)
    return RefusedError(error, status=429, retry_s=retry_s, body=body)


def _ticket(state: State, offer: Offer) -> Ticket | None:
    """The ticket that a group names, if it is that environment's, and unused."""
    if offer.ticket is None:
        return None
    ticket = state.tickets.get(offer.ticket) or state.late.get(offer.ticket)
    return ticket if ticket is not None and ticket.env_id == offer.env_id else None


def _take(state: State, offer: Offer, now: int, traceparent: str | None) -> Outcome:
    ticket = _ticket(state, offer)
    version, source = _made_by(state, offer, ticket)
    reason = _refusal(state, offer, version if source == "stated" else None)
    state.use_ticket(ticket, now)
    if reason is not None:
        for account in state.accounts(offer.env_id):
            account.refused.setdefault(reason, Amount()).add(offer.sequences)
        state.count_refused(reason, offer)
        return Outcome(reason=reason)
    item = Item(
        id=state.next_id(),
        env_id=offer.env_id,
        at=now,
        sequences=offer.sequences,
        size=len(offer.body),
        version=version,
        version_source=source,
        traceparent=traceparent,
    )
    state.add_item(item, offer.body)
    return Outcome(id=item.id)


def _made_by(state: State, offer: Offer, ticket: Ticket | None) -> tuple[PolicyVersion, VersionSource]:
    if offer.version is not None:
        return offer.version, "stated"
    if ticket is not None:
        return ticket.version, "stated"
    env = state.envs.get(offer.env_id)
    return (env.answered if env and env.answered else state.version), "assumed"


def _refusal(state: State, offer: Offer, stated: PolicyVersion | None) -> Refusal | None:
    if offer.fault is not None:
        return "invalid"
    if offer.sequences > state.batch_size:
        return "too_large"
    if unreachable(state, offer.sequences):
        return "unreachable"
    if stated is not None and state.is_abandoned(stated):
        return "abandoned"
    if stated is not None and state.age(stated) > state.max_staleness:
        return "stale"
    return None

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
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from overwatch_rl.rollouts.answers import (
    ANONYMOUS,
    Decision,
    Full,
    Offer,
    Outcomes,
    Reused,
    Tickets,
    Unknown,
)
from overwatch_rl.rollouts.fold import weight_of
from overwatch_rl.rollouts.operations import (
    Accepted,
    EnvRegistered,
    Operation,
    Outcome,
    Refusal,
    Refused,
    Ticket,
    TicketsExpired,
    TicketsIssued,
    Version,
    VersionSource,
    Waiting,
)
from overwatch_rl.rollouts.shares import (
    bounded_sums,
    present,
    renewal,
    sums,
    unknown_env,
    unreachable,
)
from overwatch_rl.rollouts.state import State

NS: Final = 10**9
TICKET_TIMES: Final = 4
"""A ticket lives so many times as long as its environment's groups take in the median."""


def overdue(state: State, now: int) -> tuple[int, ...]:
    """Tickets whose time is over."""
    return tuple(ticket.id for ticket in state.tickets.values() if ticket.expires_at <= now)


def is_done(state: State) -> bool:
    """Whether the trainer has, or has used, the batches of all its steps."""
    steps = state.trainer.num_steps if state.trainer else None
    return steps is not None and state.step >= steps


def permits(state: State, running: int) -> int:
    """Sequences that tickets may be issued for, where `running` are being generated."""
    trainer = state.trainer
    if trainer is None:
        return 0
    outstanding = state.held + running
    free = (state.max_staleness + 1 - max(0, state.behind)) * trainer.batch_size - outstanding
    if trainer.num_steps is not None:
        steps = max(0, trainer.num_steps - trainer.starting_step - state.batches)
        free = min(free, steps * trainer.batch_size - outstanding)
    return max(0, free)


def _to_free(state: State, running: int) -> int:
    """Sequences beyond the permits where what is queued makes no batch and no environment generates.

    Groups that came without a ticket may have filled the queue with sizes that do not add up.
    """
    most = (state.max_staleness + 2) * state.batch_size
    if running or state.leases or not state.lanes or is_done(state):
        return 0
    counts = Counter[int]()
    for lane, ids in state.lanes.items():
        counts[lane.sequences] += len(ids)
    is_batch = bounded_sums(counts, state.batch_size) >> state.batch_size & 1
    return 0 if is_batch else max(0, most - state.held)


def admit(state: State, env_id: int, groups: int, now: int) -> Decision[Tickets | Unknown]:
    """Issue up to `groups` tickets: fewer where permits lack, or where another's turn comes first."""
    if env_id not in state.envs:
        return Decision(answer=unknown_env(env_id))
    env = state.envs[env_id]
    over = overdue(state, now)
    operations = [*renewal(state, env_id, now, is_answered=True)]
    if over:
        operations.append(TicketsExpired(at=now, tickets=over))
    running = [ticket for ticket in state.tickets.values() if ticket.expires_at > now]
    granted = _granted(state, running, Waiting(at=now, env_id=env_id, groups=groups, until=now))
    tickets = tuple(range(state.next_id, state.next_id + granted))
    expires_at = None
    if tickets:
        expires_at = now + _lifetime(state, env_id)
        operations.append(
            TicketsIssued(
                at=now,
                env_id=env_id,
                tickets=tickets,
                sequences=env.registered.group_size,
                version=state.version,
                expires_at=expires_at,
            )
        )
    if granted < groups or env_id in state.waiting:
        until = now + int(2 * state.limits.retry_s * NS)
        operations.append(Waiting(at=now, env_id=env_id, groups=groups - granted, until=until))
    answer = Tickets(
        tickets=tickets,
        version=state.version,
        expires_at=expires_at,
        retry_s=state.limits.retry_s,
        is_done=is_done(state),
    )
    return Decision(answer=answer, operations=tuple(operations))


def _lifetime(state: State, env_id: int) -> int:
    durations = state.envs[env_id].durations
    typical = TICKET_TIMES * statistics.median(durations) if durations else 0
    return int(max(typical, state.limits.ticket_s * NS))


def _granted(state: State, running: list[Ticket], requested: Waiting) -> int:
    """Groups that the asking one gets when all that wait are served in the order of their shares.

    The next is always the one with the least sequences by weight: served, queued and running.
    """
    outstanding = Counter[int]()
    for ticket in running:
        outstanding[ticket.env_id] += ticket.sequences
    here = present(state, requested.env_id)
    waiting = [
        found for found in state.waiting.values() if found.until > requested.at and found.env_id in here
    ]
    requesting = {found.env_id: found.groups for found in [*waiting, requested]}
    line: list[tuple[float, int]] = []
    for env_id in requesting:
        env = state.envs[env_id]
        sequences = outstanding[env_id] + env.account.queued.sequences
        line.append((max(env.virtual, state.virtual) + sequences / weight_of(env), env_id))
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
        heapq.heappush(line, (tag + size / weight_of(state.envs[env_id]), env_id))
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


def accept(state: State, offers: Sequence[Offer], now: int) -> Decision[Outcomes | Full | Reused | Unknown]:
    """Take the groups of one request, all of one environment.

    A place of a request whose key is known gets its first answer again, so that a request of which a part
    was logged before a crash is completed and not doubled.
    """
    env_id = offers[0].env_id if offers else ANONYMOUS
    operations: list[Operation] = []
    if env_id in state.envs:
        operations += renewal(state, env_id, now)
    elif env_id == ANONYMOUS and state.trainer is not None:
        operations.append(
            EnvRegistered(at=now, env_id=ANONYMOUS, name="anonymous", desired_name="anonymous", group_size=1)
        )
    else:
        return Decision(answer=unknown_env(env_id))
    reused = next((offer.key for offer in offers if offer.key and _is_other(state, offer)), None)
    if reused is not None:
        return Decision(answer=Reused(key=reused))
    known = {place: _known(state, offer) for place, offer in enumerate(offers)}
    fresh = [place for place, outcome in known.items() if outcome is None]
    queued = state.account.queued
    is_full = queued.sequences >= state.limits.max_queued_batches * state.batch_size
    if is_full and any(_ticket(state, offers[place]) is None for place in fresh):
        full = Full(
            queued_groups=queued.groups,
            queued_sequences=queued.sequences,
            retry_s=state.limits.retry_s,
        )
        return Decision(answer=full, operations=tuple(operations))
    judged = dict(_judged(state, [(place, offers[place]) for place in fresh], now))
    operations += judged.values()
    new = {
        place: Outcome(id=done.id) if isinstance(done, Accepted) else Outcome(reason=done.reason)
        for place, done in judged.items()
    }
    outcomes = tuple(known[place] or new[place] for place in range(len(offers)))
    taken = frozenset(place for place, done in judged.items() if isinstance(done, Accepted))
    return Decision(answer=Outcomes(outcomes=outcomes, fresh=taken), operations=tuple(operations))


def _is_other(state: State, offer: Offer) -> bool:
    """Whether another body came under the key of an offer."""
    env = state.envs.get(offer.env_id)
    first = env.keys.get(offer.key) if env and offer.key else None
    return first is not None and first.digest not in ("", offer.digest)


def _known(state: State, offer: Offer) -> Outcome | None:
    if offer.key is None or offer.env_id not in state.envs:
        return None
    first = state.envs[offer.env_id].keys.get(offer.key)
    return first.outcomes.get(offer.index) if first else None


def _ticket(state: State, offer: Offer) -> Ticket | None:
    """The ticket that a group names, if it is that environment's, and unused."""
    if offer.ticket is None:
        return None
    ticket = state.tickets.get(offer.ticket) or state.late.get(offer.ticket)
    return ticket if ticket is not None and ticket.env_id == offer.env_id else None


def _judged(
    state: State, offers: Iterable[tuple[int, Offer]], now: int
) -> Iterator[tuple[int, Accepted | Refused]]:
    next_id = state.next_id
    for place, offer in offers:
        ticket = _ticket(state, offer)
        version, source = _made_by(state, offer, ticket)
        reason = _refusal(state, offer, version if source == "stated" else None)
        if reason is None:
            accepted = Accepted(
                at=now,
                id=next_id,
                env_id=offer.env_id,
                sequences=offer.sequences,
                tokens=offer.tokens,
                version=version,
                version_source=source,
                ticket=ticket.id if ticket else None,
                key=offer.key,
                digest=offer.digest,
                index=offer.index,
                traceparent=offer.traceparent,
            )
            next_id += 1
            yield place, accepted
        else:
            refused = Refused(
                at=now,
                env_id=offer.env_id,
                reason=reason,
                sequences=offer.sequences,
                tokens=offer.tokens,
                ticket=ticket.id if ticket else None,
                key=offer.key,
                digest=offer.digest,
                index=offer.index,
            )
            yield place, refused


def _made_by(state: State, offer: Offer, ticket: Ticket | None) -> tuple[Version, VersionSource]:
    if offer.version is not None:
        return offer.version, "stated"
    if ticket is not None:
        return ticket.version, "stated"
    env = state.envs.get(offer.env_id)
    return (env.answered if env and env.answered else state.version), "assumed"


def _refusal(state: State, offer: Offer, stated: Version | None) -> Refusal | None:
    if offer.is_invalid:
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

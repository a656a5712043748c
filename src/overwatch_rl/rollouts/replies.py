"""From the queue's answers to the replies of the wire; pure.

Owns how internal numbers look outside: durations from now, sizes in groups of an environment's own size, the
values that published clients read where there is no trainer. Must not know HTTP.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Raw

from overwatch_rl.rollouts import answers, wire
from overwatch_rl.rollouts.answers import Refusal, Trainer, Version
from overwatch_rl.rollouts.state import LEAST_WEIGHT, NS, Env
from overwatch_rl.web.faults import Fault

WHY: Final[dict[Refusal, tuple[str, str]]] = {
    "invalid": ("", "cannot be used"),
    "stale": ("version", "its policy is older than the trainer allows; take tickets with POST /admit"),
    "abandoned": ("version", "its policy's line of training was given up; load the current version"),
    "too_large": ("tokens", "has more sequences than a batch; send smaller groups"),
    "unreachable": (
        "tokens",
        "groups of this size never fill a batch exactly; see unreachable in /status-env",
    ),
}
"""The field that a refusal is about, and what to do."""


def version(value: Version) -> wire.PolicyVersion:
    """A version on the wire."""
    return wire.PolicyVersion(lineage=value.lineage, number=value.number)


def seconds(until: int | None, now: int) -> float | None:
    """From now until a moment, not below 0."""
    return None if until is None else max(0.0, (until - now) / NS)


def wandb_info(trainer: Trainer | None) -> wire.WandbInfo:
    """How runs are grouped."""
    if trainer is None:
        return wire.WandbInfo(group=None, project=None)
    return wire.WandbInfo(group=trainer.wandb_group, project=trainer.wandb_project)


def info(trainer: Trainer | None) -> wire.Info:
    """What the trainer takes."""
    if trainer is None:
        return wire.Info(batch_size=-1, max_token_len=-1)
    return wire.Info(batch_size=trainer.batch_size, max_token_len=trainer.max_token_len)


def env_registered(answer: answers.EnvAnswer | answers.Wait) -> wire.EnvRegistered | wire.EnvWaits:
    """To an environment that registers."""
    if isinstance(answer, answers.Wait):
        return wire.EnvWaits(retry_s=answer.retry_s)
    trainer = answer.trainer
    return wire.EnvRegistered(
        env_id=answer.env_id,
        wandb_name=answer.name,
        checkpoint_dir=trainer.checkpoint_dir or "",
        starting_step=answer.step,
        checkpoint_interval=-1
        if trainer.save_checkpoint_interval is None
        else trainer.save_checkpoint_interval,
        num_steps=-1 if trainer.num_steps is None else trainer.num_steps,
        version=version(answer.version),
        lease_s=answer.lease_s,
        unreachable=answer.unreachable,
    )


def outcomes(
    found: answers.Outcomes, faults: Mapping[int, Fault], *, is_list: bool
) -> wire.Received | wire.ReceivedList | wire.Refused:
    """To a sender of groups; `faults` are those that validation named, by place."""
    ids = [outcome.id for outcome in found.outcomes]
    refused = [
        _refusal(index, outcome.reason, faults.get(index), is_list=is_list)
        for index, outcome in enumerate(found.outcomes)
        if outcome.reason is not None
    ]
    queued = len(ids) - len(refused)
    if refused:
        first = f"{refused[0].path or 'group'}: {refused[0].message}"
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return wire.Refused(error=first + more, groups_processed=queued, ids=ids, refused=refused)
    if is_list:
        return wire.ReceivedList(groups_processed=queued, ids=ids)
    return wire.Received(id=ids[0] or 0)


def _refusal(index: int, reason: Refusal, fault: Fault | None, *, is_list: bool) -> wire.Refusal:
    if fault is None:
        fault = Fault(*WHY[reason])
        if is_list:
            fault = fault.within(f"[{index}]")
    return wire.Refusal(index=index, reason=reason, path=fault.path, message=fault.message)


def full(answer: answers.Full, problem: str | None) -> wire.Full:
    """To a sender whose groups found no room; `problem` is what the disk has against them."""
    why = (
        f"the database cannot be written ({problem})"
        if problem
        else f"the queue has {answer.queued_groups} groups"
    )
    return wire.Full(
        error=f"{why}; send this again in {answer.retry_s:g} s",
        queue_size=answer.queued_groups,
        queued_sequences=answer.queued_sequences,
        retry_s=answer.retry_s,
    )


def batch(
    answer: answers.Batch | answers.NoBatch | answers.Unknown, payloads: Mapping[int, bytes], now: int
) -> wire.Batch | wire.NoTrainer:
    """To a trainer that asks for a batch."""
    match answer:
        case answers.Unknown(reason=reason):
            return wire.NoTrainer(message=reason)
        case answers.NoBatch(lack=lack, reason=reason, retry_s=retry_s):
            return wire.Batch(batch=None, lack=lack, message=reason, retry_s=retry_s)
        case answers.Batch(items=items):
            lease = wire.BatchLease(id=answer.lease, expires_in_s=seconds(answer.deadline, now) or 0.0)
            return wire.Batch(
                batch=[Raw(payloads[one.id]) for one in items],
                items=list(_items(items)),
                lease=lease if answer.is_explicit else None,
                version=version(answer.version),
            )


def _items(served: Iterable[answers.Served]) -> Iterable[wire.BatchItem]:
    for one in served:
        yield wire.BatchItem(
            id=one.id,
            env_id=None if one.env_id == answers.ANONYMOUS else one.env_id,
            version=version(one.version),
            version_source=one.version_source,
            age=one.age,
            redelivered=one.is_redelivered,
            traceparent=one.traceparent,
        )


def status(answer: answers.Status) -> wire.Status:
    """To anyone who asks how the queue is."""
    return wire.Status(
        current_step=answer.step,
        queue_size=answer.held_groups,
        queued_sequences=answer.held_sequences,
        version=version(answer.version),
        permits=answer.permits,
        set_aside=aside.groups if (aside := answer.account.expired.get("returned")) else 0,
        done=answer.is_done,
    )


def env_status(answer: answers.EnvStatus, env: Env, lease_s: float) -> wire.EnvStatus:
    """To an environment that asks how the queue is."""
    size = env.registered.group_size
    whole = answer.status
    return wire.EnvStatus(
        current_step=whole.step,
        queue_size=whole.held_sequences // size,
        unallocated_fraction=answer.unallocated,
        self_queue_size=env.account.queued.sequences // size,
        max_group_size=answer.max_group_size,
        env_weight=max(LEAST_WEIGHT, answer.share),
        queued_sequences=whole.held_sequences,
        version=version(whole.version),
        lease_s=lease_s,
        unreachable=answer.unreachable,
        done=whole.is_done,
    )


def tickets(answer: answers.Tickets, now: int) -> wire.Tickets:
    """To an environment that asks for permissions."""
    return wire.Tickets(
        tickets=list(answer.tickets),
        version=version(answer.version),
        expires_in_s=seconds(answer.expires_at, now),
        retry_s=answer.retry_s,
        done=answer.is_done,
    )


def lease(answer: answers.LeaseAnswer, now: int) -> wire.Lease:
    """To a trainer that has a lease."""
    return wire.Lease(id=answer.lease, expires_in_s=seconds(answer.deadline, now), ended=answer.ended)

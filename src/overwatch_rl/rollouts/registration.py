"""Environments come, look and go; what the trainer registered is shown.

Owns registration. A trainer comes first: an environment waits until it has asked for its first batch.
Must not know batches, leases or tickets.
"""

from overwatch_rl.rollouts import wire
from overwatch_rl.rollouts.leases import status
from overwatch_rl.rollouts.shares import known, present, shares, unreachable
from overwatch_rl.rollouts.state import LEAST_WEIGHT, Env, State
from overwatch_rl.web.faults import RefusedError


def register_env(state: State, body: wire.EnvRegistration, now: int) -> wire.EnvRegistered | wire.EnvWaits:
    """An environment registers, or waits for the trainer's first request of a batch."""
    head, trainer = state.head, state.trainer
    if trainer is None or not head.is_started:
        return wire.EnvWaits(retry_s=state.limits.retry_s)
    number = sum(env.registered.desired_name == body.desired_name for env in state.envs.values())
    env = Env(
        name=f"{body.desired_name}_{number}",
        registered=body,
        seen=now,
        written=now,
        answered=head.version,
        virtual=head.virtual,
    )
    env_id, head.next_env = head.next_env, head.next_env + 1
    reason = unreachable(state, body.group_size)
    state.envs[env_id] = env
    return wire.EnvRegistered(
        env_id=env_id,
        wandb_name=env.name,
        checkpoint_dir=trainer.checkpoint_dir,
        starting_step=state.step,
        checkpoint_interval=trainer.save_checkpoint_interval,
        num_steps=state.num_steps or -1,
        version=head.version,
        lease_s=state.limits.env_lease_s,
        unreachable=reason,
    )


def disconnect_env(state: State, body: wire.EnvIdentifier, now: int) -> wire.Done | wire.Failure:  # noqa: ARG001
    """An environment leaves: its share and tickets are free at once, what it has queued is still served."""
    try:
        known(state, body.env_id)
    except RefusedError as error:
        return wire.Failure(error=str(error))
    state.leave(body.env_id, "disconnected")
    return wire.Done()


def status_env(state: State, env_id: int, now: int) -> wire.EnvStatus:
    """The queue as one environment sees it; renews it, and states the current version to it."""
    env = known(state, env_id)
    state.see(env_id, now, is_answered=True)
    whole, here, size = status(state, now), present(state, env_id), env.registered.group_size
    return wire.EnvStatus(
        current_step=whole.current_step,
        queue_size=whole.queued_sequences // size,
        unallocated_fraction=max(0.0, 1.0 - sum(other.minimum for other in here.values())),
        self_queue_size=env.account.queued.sequences // size,
        max_group_size=max((other.registered.group_size for other in here.values()), default=0),
        env_weight=max(LEAST_WEIGHT, shares(state, env_id)[env_id]),
        queued_sequences=whole.queued_sequences,
        version=whole.version,
        lease_s=state.limits.env_lease_s,
        unreachable=unreachable(state, size),
        done=whole.done,
    )


def wandb_info(state: State, now: int) -> wire.WandbInfo:  # noqa: ARG001 as every decision
    """How runs of an experiment tracker are grouped."""
    trainer = state.trainer
    return wire.WandbInfo(
        group=trainer.wandb_group if trainer else None, project=trainer.wandb_project if trainer else None
    )


def info(state: State, now: int) -> wire.Info:  # noqa: ARG001 as every decision
    """What the trainer takes."""
    return wire.Info(
        batch_size=state.batch_size or -1, max_token_len=state.trainer.max_token_len if state.trainer else -1
    )

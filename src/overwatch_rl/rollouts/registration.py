"""Environments come, look and go.

Owns registration. A trainer comes first: an environment waits until it has asked for its first batch.
Must not know batches, leases or tickets.
"""

from overwatch_rl.rollouts.answers import EnvAnswer, EnvRequest, EnvStatus, Unknown, Wait
from overwatch_rl.rollouts.leases import status
from overwatch_rl.rollouts.shares import env_status, unknown_env, unreachable
from overwatch_rl.rollouts.state import Env, State


def register_env(state: State, request: EnvRequest, now: int) -> EnvAnswer | Wait:
    """An environment registers, or waits until the trainer asked for its first batch."""
    head = state.head
    if head.trainer is None or not head.is_started:
        return Wait(retry_s=state.limits.retry_s)
    number = head.names.get(request.desired_name, 0)
    head.names[request.desired_name] = number + 1
    env = Env(
        name=f"{request.desired_name}_{number}",
        registered=request,
        seen=now,
        written=now,
        answered=head.version,
        virtual=head.virtual,
    )
    env_id, head.next_env = head.next_env, head.next_env + 1
    reason = unreachable(state, request.group_size)
    state.envs[env_id] = env
    return EnvAnswer(
        env_id=env_id,
        name=env.name,
        trainer=head.trainer,
        step=state.step,
        version=head.version,
        lease_s=state.limits.env_lease_s,
        unreachable=reason,
    )


def disconnect_env(state: State, env_id: int, now: int) -> Unknown | None:  # noqa: ARG001 as every decision
    """An environment leaves: its share and tickets are free at once, its queued groups stay."""
    if env_id not in state.envs:
        return unknown_env(env_id)
    state.leave(env_id, "disconnected")
    return None


def status_env(state: State, env_id: int, now: int) -> EnvStatus | Unknown:
    """The queue as one environment sees it; renews it, and states the current version to it."""
    if env_id not in state.envs:
        return unknown_env(env_id)
    state.see(env_id, now, is_answered=True)
    return env_status(state, env_id, status(state, now))

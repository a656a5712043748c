"""Environments come, look and go.

Owns registration. A trainer comes first: an environment waits until it has asked for its first batch.
Must not know batches, leases or tickets.
"""

from overwatch_rl.rollouts.answers import Decision, EnvAnswer, EnvRequest, EnvStatus, Unknown, Wait
from overwatch_rl.rollouts.leases import status
from overwatch_rl.rollouts.operations import EnvDisconnected, EnvRegistered
from overwatch_rl.rollouts.shares import env_status, renewal, unknown_env, unreachable
from overwatch_rl.rollouts.state import State


def register_env(state: State, request: EnvRequest, now: int) -> Decision[EnvAnswer | Wait]:
    """An environment registers, or waits until the trainer asked for its first batch."""
    if state.trainer is None or not state.is_started:
        return Decision(answer=Wait(retry_s=state.limits.retry_s))
    number = state.names.get(request.desired_name, 0)
    registered = EnvRegistered(
        at=now,
        env_id=state.next_env,
        name=f"{request.desired_name}_{number}",
        desired_name=request.desired_name,
        group_size=request.group_size,
        weight=request.weight,
        max_token_length=request.max_token_length,
        minimum=request.minimum,
    )
    answer = EnvAnswer(
        env_id=registered.env_id,
        name=registered.name,
        trainer=state.trainer,
        step=state.step,
        version=state.version,
        lease_s=state.limits.env_lease_s,
        unreachable=unreachable(state, request.group_size),
    )
    return Decision(answer=answer, operations=(registered,))


def disconnect_env(state: State, env_id: int, now: int) -> Decision[Unknown | None]:
    """An environment leaves: its share and tickets are free at once, its queued groups stay."""
    if env_id not in state.envs:
        return Decision(answer=unknown_env(env_id))
    return Decision(answer=None, operations=(EnvDisconnected(at=now, env_id=env_id),))


def status_env(state: State, env_id: int, now: int) -> Decision[EnvStatus | Unknown]:
    """The queue as one environment sees it; renews it, and states the current version to it."""
    if env_id not in state.envs:
        return Decision(answer=unknown_env(env_id))
    answer = env_status(state, env_id, status(state, now))
    return Decision(answer=answer, operations=renewal(state, env_id, now, is_answered=True))

"""A handler: draws answers with the newest weights and sends them to the rollouts server, until it is done.

Rules: it generates only with a ticket, so nothing that it makes is too old when it is used; each group is
stamped with the weights that drew it; weights are looked for before each round. Must not know the trainer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec

from overwatch_rl.grpo.connection import Connection
from overwatch_rl.grpo.sampler import Sampler
from overwatch_rl.grpo.weights import newest
from overwatch_rl.rollouts import wire

_LOOK_S: Final = 0.1


class HandlerFlags(TypedDict):
    """What `overwatch-rl grpo-handler` was given of a handler's own."""

    name: str
    group_size: int
    round_groups: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerConfig:
    """One handler."""

    weights: Path
    """Folder that the trainer publishes into."""
    name: str = "sort"
    group_size: int = 8
    round_groups: int = 8
    """Most groups drawn together."""
    seed: int = 0
    stale_from: int | None = None
    """A fault: from this version on the weights stay, and groups are stamped with the newest all the same."""

    def __post_init__(self) -> None:
        if self.round_groups < 1:
            raise ValueError(f"round_groups is {self.round_groups}; use 1 or more")


class Handler:
    """One environment of the server."""

    def __init__(self, connection: Connection, config: HandlerConfig, wait: Callable[[float], bool]) -> None:
        """`wait` waits for so many seconds, or for less and answers true when it shall end."""
        self._connection = connection
        self._config = config
        self._wait = wait
        self.sent = 0
        """Groups that the server took."""

    def run(self) -> None:
        """Generate until the training is done or it shall end."""
        sampler = self._sampler()
        registered = None if sampler is None else self._registered()
        if sampler is None or registered is None:
            return
        env_id = registered.env_id
        while not self._wait(0.0):
            asked = wire.Admission(env_id=env_id, groups=self._config.round_groups)
            tickets = self._connection.post("/admit", asked, wire.Tickets)
            if tickets.done:
                break
            if not tickets.tickets:
                self._wait(min(tickets.retry_s, _LOOK_S))
                continue
            self._refresh(sampler)
            self._send(env_id, tickets.tickets, sampler.groups(len(tickets.tickets)))
        self._connection.post("/disconnect-env", {"env_id": env_id}, wire.Done | wire.Failure)  # type: ignore[arg-type]

    def _sampler(self) -> Sampler | None:
        """With the first weights that are published; `None` when it shall end before."""
        while (found := newest(self._config.weights)) is None:
            if self._wait(_LOOK_S):
                return None
        return Sampler(found, group_size=self._config.group_size, seed=self._config.seed)

    def _registered(self) -> wire.EnvRegistered | None:
        """As an environment of the server; `None` when it shall end before the trainer starts."""
        asked = wire.EnvRegistration(
            max_token_length=0, desired_name=self._config.name, group_size=self._config.group_size
        )
        while True:
            answer = self._connection.post("/register-env", asked, msgspec.Raw)
            waits = msgspec.json.decode(answer, type=dict[str, Any]).get("status") != "success"
            if not waits:
                return msgspec.json.decode(answer, type=wire.EnvRegistered)
            if self._wait(_LOOK_S):
                return None

    def _refresh(self, sampler: Sampler) -> None:
        found = newest(self._config.weights, sampler.version)
        if found is None:
            return
        fault = self._config.stale_from
        if fault is not None and found.version.number >= fault:
            sampler.version = found.version
        else:
            sampler.take(found)

    def _send(self, env_id: int, tickets: list[int], groups: list[dict[str, Any]]) -> None:
        body = [
            {**group, "env_id": env_id, "ticket": ticket}
            for group, ticket in zip(groups, tickets, strict=True)
        ]
        said = self._connection.offer("/scored_data_list", body, self._wait)
        if said:
            self.sent += msgspec.json.decode(said, type=_Taken).groups_processed


class _Taken(msgspec.Struct):
    """What is read of an answer to a list of groups."""

    groups_processed: int = 0

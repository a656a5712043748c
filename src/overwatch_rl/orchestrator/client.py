"""The orchestrator as a learner, an actor or an evaluation calls it."""

from typing import Any

from overwatch_rl.orchestrator.commands import Done, Issued


class OrchestratorClient:
    """One run of an orchestrator, for an event loop: `async with OrchestratorClient(url, run_id, token) as it:`."""

    def __init__(self, url: str, run_id: str, token: str | None = None) -> None:
        raise NotImplementedError

    async def run(self) -> Any:
        """The run's record: config, seed_base, weights_public_key, state, lineage, tuned, checkpoint_version."""
        raise NotImplementedError

    async def next_command(self, wait_s: float = 0.0) -> Issued | None:
        """The command in force, or the next one; waits at the server for so long where there is none."""
        raise NotImplementedError

    async def acknowledge(self, command_id: str, done: Done) -> None:
        """What became of a command."""
        raise NotImplementedError

    async def publish_key(self, public_key: str) -> None:
        """Register the public key that this run's weights are signed with (once; hex of 32 bytes)."""
        raise NotImplementedError

    async def register_artifact(
        self, *, kind: str, version: str, uri: str, sha256: str | None = None, details: Any = None
    ) -> None:
        """A checkpoint or weights are written at `uri`; the same (kind, version) again changes nothing."""
        raise NotImplementedError

    async def post_evaluation(
        self, *, version: str, mean_return: float, episodes: int, details: Any = None
    ) -> None:
        """What `evaluate` found of a version."""
        raise NotImplementedError

    async def evaluations(self) -> list[Any]:
        """All evaluations, oldest first: `version`, `mean_return`, `episodes`."""
        raise NotImplementedError

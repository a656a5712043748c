"""What the orchestrator is configured with, and who may call it in which role."""

from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from pydantic import Field

from overwatch_rl.orchestrator.states import LEAST_S, STALE_S, UNRESPONSIVE_S, Pace
from overwatch_rl.web.authorisation import Authorisation, read_token
from overwatch_rl.web.config import ServiceConfig

Role: TypeAlias = Literal["operator", "learner", "reader"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class OrchestratorConfig(ServiceConfig, frozen=True):
    """One server."""

    listen: str = "127.0.0.1:8200"
    store: str = Field(
        "sqlite:///orchestrator/runs.db",
        description="Database that runs are kept in, a URL as SQLAlchemy has it.",
    )
    operator_token: Path | None = Field(
        None, description="File with the bearer token of who may create runs and command them."
    )
    learner_token: Path | None = Field(
        None, description="File with the bearer token of who may create runs, beat, obey and register."
    )
    reader_token: Path | None = Field(None, description="File with the bearer token of who may look.")
    heartbeat_s: float = Field(LEAST_S, ge=0, description="The least time between two heartbeats of a run.")
    stale_s: float = Field(STALE_S, gt=0, description="Silence after which a run is stale.")
    unresponsive_s: float = Field(UNRESPONSIVE_S, gt=0, description="Silence after which it is unresponsive.")
    read_s: float = Field(30.0, ge=0.01, description="How long the body of a request may take to arrive.")
    idle_s: float = Field(75.0, ge=0.01, description="When a connection is closed that asks nothing.")

    @property
    def pace(self) -> Pace:
        """How often learners beat."""
        return Pace(least_s=self.heartbeat_s, stale_s=self.stale_s, unresponsive_s=self.unresponsive_s)

    @property
    def authorisation(self) -> Authorisation:
        """By role; without an operator's token nobody could command, so another alone is a mistake."""
        files = {role: getattr(self, f"{role}_token") for role in ROLES}
        tokens: dict[str, str] = {role: read_token(file) for role, file in files.items() if file is not None}
        if tokens and "operator" not in tokens:
            raise ValueError(
                f"there is a token of {', '.join(tokens)} and none of operator; add --operator-token"
            )
        return Authorisation(self.address[0], tokens, "--operator-token")

    def model_post_init(self, _: object) -> None:
        """Raise where the parts do not go together."""
        super().model_post_init(_)
        _ = self.pace, self.authorisation

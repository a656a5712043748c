"""What the rollouts server is configured with: where groups are, how many, and for how long."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from overwatch_rl.rollouts.answers import MOST_SEQUENCES, Limits
from overwatch_rl.web.authorisation import Authorisation, read_token
from overwatch_rl.web.config import YEAR_S, Duration, ServiceConfig

if TYPE_CHECKING:
    from overwatch_rl.rollouts.store import StoreLimits


class RolloutsConfig(ServiceConfig, frozen=True):
    """One server."""

    listen: str = "127.0.0.1:8000"
    folder: Path = Field(Path("rollouts"), description="Where groups are kept until they are used.")
    database: str | None = Field(
        None, description="postgresql://… instead, for any number of servers over one queue."
    )
    durability: Literal["memory", "fast", "fsync"] = Field(
        "fsync", description="What an acknowledged group survives: nothing, the server's death, a power loss."
    )
    token_file: Path | None = Field(
        None, description="Bearer token that clients must send; needed where others can reach the address."
    )
    max_staleness: int = Field(
        3, ge=0, description="Versions that a group may be old, unless the trainer registers another limit."
    )
    max_queued_batches: int = Field(64, ge=1, description="From so many batches on new groups wait.")
    max_memory_mib: int = Field(1024, ge=1, description="Of groups.")
    max_body_mib: int = Field(32, ge=1, le=1024, description="Of one request.")
    lease_s: Duration = Field(120.0, description="How long a trainer that acknowledges has a batch.")
    implicit_lease_s: Duration = Field(
        600.0, description="When a batch of a trainer that cannot acknowledge counts as used."
    )
    env_lease_s: Duration = Field(
        60.0, description="When an environment without a call loses its share, until it calls."
    )
    ticket_s: Duration = Field(60.0, description="The least life of a ticket.")
    retry_s: float = Field(1.0, ge=0.01, le=YEAR_S, description="When clients that must wait ask again.")

    @property
    def authorisation(self) -> Authorisation:
        """Who may call."""
        token = None if self.token_file is None else read_token(self.token_file)
        return Authorisation(self.address[0], token)

    @property
    def limits(self) -> Limits:
        """Bounds of the queue; the shortest sequence, with mask and score, has 64 bytes."""
        same = self.model_dump(include=set(Limits.__struct_fields__))
        return Limits(**same, max_batch_size=min(MOST_SEQUENCES, self.held_bytes // 64))

    @property
    def held_bytes(self) -> int:
        """Most bytes of groups."""
        return self.max_memory_mib << 20

    @property
    def store(self) -> "StoreLimits":
        """Where groups are."""
        from overwatch_rl.rollouts.store import Level, StoreLimits

        return StoreLimits(url=self._place[1], level=Level(self.durability), held_bytes=self.held_bytes)

    @property
    def place(self) -> str:
        """Where groups are, for a person."""
        return self._place[0]

    @property
    def _place(self) -> tuple[str, str]:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        from overwatch_rl.rollouts.store import sqlite_url

        if self.database is None:
            if self.durability == "memory":
                return "in memory alone", "sqlite://"
            return f"in {self.folder}", sqlite_url(self.folder)
        try:
            url = make_url(self.database)
        except ArgumentError:
            url = None
        if url is None or url.get_backend_name() != "postgresql" or self.durability == "memory":
            shown = self.database if url is None else url.render_as_string()
            raise ValueError(
                f"database is {shown!r} with durability {self.durability}; write "
                "postgresql://user@host/name with fast or fsync, or leave it out for a file in --folder"
            )
        if find_spec("psycopg") is None:
            raise ValueError('database needs a driver; pip install "psycopg[binary]"')
        url = url.set(drivername="postgresql+psycopg")
        return f"in {url.render_as_string()}", url.render_as_string(hide_password=False)

    def model_post_init(self, _: object) -> None:
        """Raise where the parts do not go together."""
        super().model_post_init(_)
        _ = self.authorisation, self.store

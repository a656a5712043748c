"""What every service is configured with: the model gives flags, environment, TOML file, bounds and help."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, Field

from overwatch.platform import raise_file_limit
from overwatch_rl.web.process import address, endpoint, loop_factory, status_of

if TYPE_CHECKING:
    from overwatch.sdk import Run
    from overwatch_rl.web.site import ConnectionLimits

YEAR_S: Final = 31_536_000.0
"""The longest of all times that end something: deadlines are whole nanoseconds of 64 bits."""
_OTHER_FILES: Final = 256
"""Descriptors that are not for connections."""
Duration = Annotated[float, Field(ge=1, le=YEAR_S)]


class ServiceConfig(BaseModel, frozen=True):
    """A server of HTTP that reports to the tower; raises `ValueError` naming the value and the fix."""

    listen: str
    tls_cert: Path | None = Field(
        None, description="PEM: the certificate to serve HTTPS with, then those between it and its authority."
    )
    tls_key: Path | None = Field(None, description="PEM: its private key.")
    max_connections: int = Field(1024, ge=1, description="Open at a time.")
    read_s: float = Field(60.0, ge=0.01, description="How long the body of a request may take to arrive.")
    idle_s: float = Field(
        300.0,
        ge=0.01,
        description="When a connection is closed that asks nothing, or does not end the head of its request.",
    )
    run_id: str | None = Field(None, description="The run that the server reports to; made up without.")
    endpoint: str | None = Field(None, description="OTLP endpoint, a URL; found by itself without.")
    telemetry: bool = Field(True, description="Report to the tower.")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; port 0 is any that is free."""
        return address(self.listen)

    @property
    def connections(self) -> "ConnectionLimits":
        """Limits of connections."""
        from overwatch_rl.web.site import ConnectionLimits

        return ConnectionLimits(most=self.max_connections, read_s=self.read_s, idle_s=self.idle_s)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """`None` for plain HTTP."""
        from overwatch_rl.web.site import tls_context

        return tls_context(self.tls_cert, self.tls_key)

    def model_post_init(self, _: object) -> None:
        """Raise where an address, a certificate or an endpoint cannot be used."""
        _ = self.address, self.tls, endpoint(self.endpoint)

    def run(
        self,
        start: Callable[[str | None, str | None], "Run"],
        serve: Callable[["Run | None"], Coroutine[Any, Any, int]],
    ) -> int:
        """Serve until a signal, whose number `serve` returns; 0, or 130 where that was SIGINT.

        With telemetry the service is a run of the tower, which `start` begins.
        """
        raise_file_limit(self.max_connections + _OTHER_FILES)
        tower = start(self.run_id, self.endpoint) if self.telemetry else None
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                number = runner.run(serve(tower))
        except BaseException as error:
            if tower is not None:
                tower.close(outcome="failed", reason=str(error))
            raise
        if tower is not None:
            tower.close(outcome="completed")
        return status_of(number)

"""A learner over HTTP: its newest weights, for actors without a store. Must not know how they are made."""

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.process import address
from overwatch_rl.web.site import tls_context
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.served import weights_routes


@dataclass(frozen=True, slots=True)
class Serving:
    """Where, and for which learner."""

    listen: str
    """`HOST:PORT`."""
    token: str | None
    cert: Path | None = None
    key: Path | None = None
    """PEM files, both or neither."""

    def __post_init__(self) -> None:
        """Raise `ValueError` where others could reach it without a token, or the files are no pair."""
        Authorisation(address(self.listen)[0], self.token, "--listen-token")
        tls_context(self.cert, self.key)

    async def serve(self, place: Place) -> None:
        """Until it is cancelled. Raises `OSError` where the address cannot be used."""
        host, port = address(self.listen)
        with closing(open_channel(place)) as source:
            app = web.Application()
            app.add_routes(weights_routes(source, Authorisation(host, self.token)))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, host, port, ssl_context=tls_context(self.cert, self.key)).start()
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

"""Several collectors as one feed: the runs of all of them, the one that is watched, and acknowledging.

Owns which collector is watched. What one of them cannot answer is said, and never keeps the others out.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
import msgspec

from overwatch import discovery
from overwatch.feeds.live import Connection, Live, Update, reason_of
from overwatch.snapshot import RunLine, RunList, View
from overwatch.snapshot.history import HISTORY_VERSION, Ask, History
from overwatch.snapshot.history import decode as decode_history

_ANSWER_S = 5.0
_runs = msgspec.json.Decoder(RunList).decode


class AckError(RuntimeError):
    """A finding that could not be acknowledged; says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A run, and the collector that knows it; or a collector that does not answer."""

    collector: str
    """Its view API, as `Live.address`."""
    run: RunLine | None = None
    reason: str | None = None
    """Why the collector does not answer."""


class Towers:
    """The collectors that a user named; the first is watched until another run is chosen."""

    def __init__(self, urls: Sequence[str], run_id: str | None = None) -> None:
        """Raise `ValueError` for a URL that is no address, or where there is none."""
        if not urls:
            raise ValueError("no collector to watch; name one as ws://HOST:PORT")
        self._live = Live(urls[0], run_id)
        self.addresses = tuple(dict.fromkeys(Live(url).address for url in urls))
        """Of all view APIs."""

    @property
    def address(self) -> str:
        """The view API that is watched."""
        return self._live.address

    @property
    def run_id(self) -> str | None:
        """The run that is watched; `None` follows the newest."""
        return self._live.run_id

    @property
    def connection(self) -> Connection:
        """To the collector that is watched."""
        return self._live.connection

    @property
    def age_s(self) -> float | None:
        """Seconds since the last snapshot arrived; `None` before the first."""
        return self._live.age_s

    def select(self, view: View) -> None:
        """Show another view of the run from now on."""
        self._live.select(view)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Snapshots and changes of the connection; never raises."""
        return self._live.updates()

    def go(self, listed: Listed) -> None:
        """Watch another run from now on."""
        if listed.run is not None:
            self._live.go(listed.collector, listed.run.run_id)

    async def runs(self) -> tuple[Listed, ...]:
        """The runs of all collectors, in the order in which these were named; never raises."""
        async with _session() as session:
            found = await asyncio.gather(*(_runs_of(session, one) for one in self.addresses))
        return tuple(listed for part in found for listed in part)

    async def history(self, run_id: str | None, ask: Ask) -> History | None:
        """The past of a run of the watched collector; `None` where that has none to give. Never raises."""
        headers = _bearer(discovery.token_to_read(self.address))
        query = history_query(self.run_id if run_id is None else run_id, ask)
        try:
            async with (
                _session() as session,
                session.get(f"{_http(self.address)}/api/v1/history", params=query, headers=headers) as answer,
            ):
                found = decode_history(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
            return None
        return found if found is not None and is_readable(found) else None

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Say that somebody knows about a finding; raises `AckError`."""
        url = f"{_http(self.address)}/api/v1/findings/{quote(finding_id, safe='')}/ack"
        headers = _bearer(discovery.token_to_control(self.address))
        try:
            async with (
                _session() as session,
                session.post(url, params={"run": run_id}, headers=headers) as answer,
            ):
                if answer.status >= 300:
                    raise AckError(_why(answer.status, await answer.text()))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AckError(f"not acknowledged: {reason_of(error)}") from None


def is_readable(history: History) -> bool:
    """Whether this build reads an answer of that version."""
    return history.schema_version.partition(".")[0] == HISTORY_VERSION.partition(".")[0]


def history_query(run_id: str | None, ask: Ask) -> list[tuple[str, str]]:
    """What is asked for as the API's parameters; what is as usual is left out."""
    query = [("name", name) for name in ask.names]
    if run_id is not None:
        query.append(("run", run_id))
    if ask.columns != Ask().columns:
        query.append(("columns", str(ask.columns)))
    query += [(word, repr(at)) for word, at in (("from", ask.since), ("to", ask.until)) if at is not None]
    return [*query, ("about", "yes")] if ask.about else query


def _why(status: int, body: str) -> str:
    if status in (401, 403):
        return f"not acknowledged: HTTP {status}; set {discovery.VARIABLE} to a token that may control"
    try:
        said = str(msgspec.json.decode(body, type=dict[str, str | None]).get("error") or "")
    except (msgspec.DecodeError, msgspec.ValidationError):
        said = ""
    return f"not acknowledged: {said or f'HTTP {status}'}"


async def _runs_of(session: aiohttp.ClientSession, address: str) -> tuple[Listed, ...]:
    headers = _bearer(discovery.token_to_read(address))
    try:
        async with session.get(f"{_http(address)}/api/v1/runs", headers=headers) as answer:
            if answer.status != 200:
                return (Listed(collector=address, reason=f"refused with HTTP {answer.status}"),)
            told = _runs(await answer.read())
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        return (Listed(collector=address, reason=reason_of(error)),)
    return tuple(Listed(collector=address, run=run) for run in told.runs)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S))


def _http(address: str) -> str:
    return "http" + address.removeprefix("ws")


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}

"""`GET /api/v1/history`: the past of one run, of the collector's memory or of its archive.

Rules: an answer is made once for all who ask the same within a second. Must not know how the past is kept.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from aiohttp import web

from overwatch.serve.answers import BadRequest, answer, only
from overwatch.serve.archive import Archive, ArchiveError
from overwatch.snapshot.history import MOST_COLUMNS, Ask, History

if TYPE_CHECKING:
    from concurrent.futures import Future

    from multidict import MultiMapping

PATH: Final = "/api/v1/history"
ANSWER_S: Final = 3.0
"""How long a request waits for the next tick."""
FRESH_S: Final = 1.0
"""How long an answer is given again."""
_MOST_NAMES: Final = 64
_MOST_KEPT: Final = 8
"""Answers that are kept."""
_TAKES: Final = frozenset({"run", "name", "columns", "from", "to", "about"})
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Tower(Protocol):
    """What knows the past of runs."""

    def history(self, run_id: str | None, ask: Ask) -> "Future[History | None]":
        """The past of a run, as of the next tick."""
        ...


class PastRoute:
    """The route."""

    def __init__(
        self, tower: Tower, archive: Archive | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tower = tower
        self._archive = archive
        self._clock = clock
        self._kept: OrderedDict[tuple[str | None, Ask], tuple[float, bytes]] = OrderedDict()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request. Raises `BadRequest`."""
        only(request.query, _TAKES)
        run_id, ask = request.query.get("run") or None, asked(request.query)
        known = self._kept.get((run_id, ask))
        if known is not None and self._clock() - known[0] < FRESH_S:
            return answer(200, known[1])
        found = await self._find(run_id, ask)
        if found is None:
            what = "no run has reported yet" if run_id is None else f"run {run_id!r} is not known here"
            raise BadRequest(404, f"{what}; GET /api/v1/runs lists those that are", "run")
        body = _encode(found)
        self._kept[run_id, ask] = self._clock(), body
        self._kept.move_to_end((run_id, ask))
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer(200, body)

    async def _find(self, run_id: str | None, ask: Ask) -> History | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await asyncio.wrap_future(self._tower.history(run_id, ask))
        except TimeoutError:
            raise BadRequest(503, "the collector has no tick yet; ask again in a moment", None) from None
        if found is not None or run_id is None or self._archive is None:
            return found
        try:
            return await asyncio.to_thread(self._archive.history, run_id, ask)
        except ArchiveError as error:
            raise BadRequest(404, str(error), "run") from error


def asked(query: "MultiMapping[str]") -> Ask:
    """What the parameters ask for. Raises `BadRequest`, which names the parameter and what it takes."""
    names = tuple(dict.fromkeys(name for name in query.getall("name", ()) if name))
    if len(names) > _MOST_NAMES:
        raise BadRequest(400, f"{len(names)} names; ask for at most {_MOST_NAMES}, or use a pattern", "name")
    since, until = _time(query, "from"), _time(query, "to")
    if since is not None and until is not None and since > until:
        raise BadRequest(400, f"from={since:g} is after to={until:g}; exchange them", "from")
    about = query.get("about") or "no"
    if about not in ("yes", "no"):
        raise BadRequest(400, f"about={about[:40]!r} is not one of yes, no", "about")
    return Ask(names=names, columns=_columns(query), since=since, until=until, about=about == "yes")


def _columns(query: "MultiMapping[str]") -> int:
    text = query.get("columns") or str(Ask().columns)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_COLUMNS):
        raise BadRequest(
            400, f"columns={text[:40]!r} is not a whole number from 1 to {MOST_COLUMNS}", "columns"
        )
    return int(text)


def _time(query: "MultiMapping[str]", name: str) -> float | None:
    text = query.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e10:
        raise BadRequest(400, f"{name}={text[:40]!r} is not a time; use Unix seconds, e.g. 1700000000", name)
    return value

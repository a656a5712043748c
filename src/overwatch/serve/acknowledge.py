"""The route that acknowledges a finding: an operator's word becomes an event like any other.

Rules: the one route of the view API that changes something; success is answered once the event is as safe as
what trainers say, and the next snapshot shows it; who asks again is told the same. Must not know who may
ask, or where the event is kept.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from overwatch.events import FindingAcknowledged
from overwatch.journal import JournalFullError
from overwatch.serve.answers import BadRequest, answer, only
from overwatch.snapshot import Finding, Snapshot, View

Keep: TypeAlias = Callable[[str, FindingAcknowledged], Awaitable[None]]
"""Keeps an event of a run; raises `JournalFullError` when there is no room."""

Look: TypeAlias = Callable[[str | None], Snapshot | None]
"""The latest snapshot of a run, of the newest run without a name."""

PATH: Final = "/api/v1/findings/{finding}/ack"
_LONGEST_NAME: Final = 100


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""

    run: str
    finding: str
    acknowledged: bool = True


class AckRoute:
    """`POST /api/v1/findings/{id}/ack?run=&by=`."""

    def __init__(
        self, look: Look, keep: Keep, now: Callable[[], int], is_archived: Callable[[str], bool]
    ) -> None:
        """`is_archived` is of a run that `look` finds no more."""
        self._look = look
        self._is_archived = is_archived
        self._keep = keep
        self._now = now

    async def handle(self, request: web.Request) -> web.Response:
        """Acknowledge one finding that is open."""
        only(request.query, frozenset({"run", "by"}))
        named = request.query.get("run") or None
        snapshot = self._look(named)
        if snapshot is None and named is not None and self._is_archived(named):
            over = f"run {named!r} is over and archived: it is shown as it was, and can only be read"
            raise BadRequest(409, over, "run")
        if snapshot is None:
            raise BadRequest(404, "no such run; GET /api/v1/runs lists those that are known", "run")
        run_id, finding = snapshot.run.run_id, _open(snapshot, request.match_info["finding"])
        if not finding.acknowledged:
            said = FindingAcknowledged(at=self._now(), finding=finding.id, by=_name(request.query))
            try:
                await self._keep(run_id, said)
            except JournalFullError as error:
                raise BadRequest(503, f"not acknowledged: {error}") from error
        return answer(200, msgspec.json.encode(Acknowledged(run=run_id, finding=finding.id)))


def latest(snapshots: Mapping[tuple[str, View], Snapshot], run_id: str | None) -> Snapshot | None:
    """A run's snapshot with everything that is wrong with it."""
    return None if run_id is None else snapshots.get((run_id, View()))


def _open(snapshot: Snapshot, wanted: str) -> Finding:
    for finding in snapshot.findings:
        if finding.id == wanted and finding.cleared_at is None:
            return finding
    raise BadRequest(404, f"run {snapshot.run.run_id!r} has no open finding {wanted[:80]!r}", "finding")


def _name(query: Mapping[str, str]) -> str | None:
    name = query.get("by", "").strip()
    if len(name) > _LONGEST_NAME:
        raise BadRequest(400, f"by: a name has at most {_LONGEST_NAME} characters, not {len(name)}", "by")
    return name or None

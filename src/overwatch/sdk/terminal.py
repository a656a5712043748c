"""What a run prints on the error stream of its trainer: two lines at its start, a card at its end.

Rules: one process of a run prints, rank 0 in its main process, unless it is asked to be quiet. A stream that
takes nothing, or is closed, costs the lines and nothing else. A collector is asked for the end within the
time that the trainer gave for closing; what that takes is loaded then. The exporter logs a collector that is
away, not this module. Must not know rings.
"""

import contextlib
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch import discovery
from overwatch.sdk.ending import Ending

if TYPE_CHECKING:
    from overwatch.sdk.link import Outcome
    from overwatch.snapshot import Snapshot

VARIABLE: Final = "OVERWATCH_QUIET"
REQUESTED_S: Final = 1.0
"""Most time for the collector's answer about the end."""
_AGAIN_S: Final = 0.05
_MOST: Final = 64 << 20
"""Bytes of an answer that are read."""
_YES: Final = frozenset({"1", "true", "yes", "on"})
_STEERING: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != ord("\t")}
"""Characters that a terminal would take for its own."""


def is_quiet(requested: object, rank: int) -> bool:
    """Whether this process prints nothing: by an argument, the environment, its rank, or as a worker."""
    process = sys.modules.get("multiprocessing.process")
    is_worker = process is not None and process.parent_process() is not None
    return requested is True or os.environ.get(VARIABLE, "").strip().lower() in _YES or rank > 0 or is_worker


class Terminal:
    """The lines of one run."""

    def __init__(self, run_id: str, endpoint: str | None) -> None:
        """`endpoint` is what the trainer asked for."""
        self._run_id = run_id
        self._to = endpoint or _destination()

    def started(self) -> None:
        """Print what the run is called, where it reports, and how to watch it."""
        watch = f"watch it: overwatch tui --run {shlex.quote(self._run_id)}"
        _print([f"run {self._run_id} reports to {self._to}", watch])

    def ended(self, how: Ending, fate: "Outcome", within_s: float) -> None:
        """Print how it ended; the collector of this machine is asked what stood, for so long at most."""
        from overwatch.endcard import card, ending

        deadline = time.monotonic() + min(within_s, REQUESTED_S)
        is_there = not fate.dropped and not fate.kept
        found = last_snapshot(self._run_id, min(within_s, REQUESTED_S)) if is_there else None
        if found is not None:
            best = best_return(self._run_id, deadline - time.monotonic())
            _print(card(found, look(self._run_id), best))
            return
        _print([f"run {self._run_id} {ending(how.outcome, how.reason)}", *self._unseen(fate)])

    def _unseen(self, fate: "Outcome") -> list[str]:
        lines = []
        if fate.kept:
            lines += [
                f"  kept    {fate.kept:,} records wait on disk: {self._to} did not take them",
                "  send    overwatch collect receives them, overwatch sync sends them",
            ]
        if fate.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(fate.dropped.items()))
            lines.append(f"  lost    {reasons}")
        where = f"  look      overwatch tui --run {shlex.quote(self._run_id)}"
        return lines or [f"{where}, where the collector's view is reached"]


def _destination() -> str:
    """Where telemetry goes by the environment, else by what is announced, else by default."""
    from overwatch.delivery.destination import target
    from overwatch.journal import Signal

    return target(Signal.LOGS, None).shown


def look(run_id: str) -> str:
    """The command that shows more of a run: a page of its recording, where that lies on this machine."""
    found = discovery.read()
    if found is None or found.recording is None:
        return f"overwatch tui --run {shlex.quote(run_id)}"
    return f"overwatch report {shlex.quote(found.recording)} --run {shlex.quote(run_id)}"


def last_snapshot(run_id: str, within_s: float) -> "Snapshot | None":
    """What the collector that is announced on this machine shows of a run, once its end is in it."""
    from overwatch import codec

    deadline = time.monotonic() + within_s
    while (left := deadline - time.monotonic()) > 0:
        try:
            snapshot = codec.decode(_requested("snapshot", {"run": run_id, "rows": "1"}, left))
        except LookupError:
            pass  # a run of which nothing was folded yet is not known
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        else:
            if snapshot.run.outcome is not None:
                return snapshot
        time.sleep(min(_AGAIN_S, max(0.0, deadline - time.monotonic())))
    return None


def best_return(run_id: str, within_s: float) -> str | None:
    """The best return of a run and its update, by this machine's collector; `None` where none is known."""
    from overwatch.snapshot.history import decode

    try:
        past = decode(_requested("history", {"run": run_id, "name": "return", "columns": "1"}, within_s))
    except (OSError, LookupError, ValueError, msgspec.MsgspecError):
        return None
    found = next((one for one in past.curves if one.best is not None), None)
    if found is None or found.best is None:
        return None
    update = "" if found.best_update is None else f" at update {found.best_update}"
    return f"{format(found.best, found.fmt)}{found.suffix}{update}"


def _requested(what: str, query: dict[str, str], within_s: float) -> bytes:
    """An answer of the collector that is announced on this machine; raises `OSError`.

    Raises `LookupError` where it answers that it has none.
    """
    import urllib.parse

    from overwatch.delivery.connection import http_request

    found = discovery.read()
    if found is None or found.view is None:
        raise FileNotFoundError("no collector is announced on this machine")
    base = found.view.replace("ws://", "http://", 1).replace("wss://", "https://", 1)
    url = f"{base}/api/v1/{what}?{urllib.parse.urlencode(query)}"
    token = discovery.token_to_read(found.view)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    reply = http_request(url, timeout_s=max(within_s, _AGAIN_S), headers=headers, most=_MOST, env={})
    if reply.status != 200:
        raise LookupError(f"{url} answered {reply.status}")
    return reply.body


def _print(lines: list[str]) -> None:
    """Print on the error stream as it is now, which a notebook or a test may have replaced."""
    text = "".join(f"overwatch: {line.translate(_STEERING)}\n" for line in lines)
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()

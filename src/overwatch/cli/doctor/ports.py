"""Ports: is each address of the configuration free, held by our own collector, or by which process.

Rules: the listeners are opened in the collector's own order and stay open until the last one was looked at,
so that the port named is the port that `collect` would take: a listener that moves does not take one that
an earlier listener has. All are closed at the end.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from overwatch import discovery
from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.collector.guard import Listener
from overwatch.collector.net import AddressError, holder, listen, parse
from overwatch.collector.settings import CollectorConfig, opened

AREA: Final = "ports"


def ports(config: CollectorConfig, fixed: frozenset[str] = frozenset()) -> Iterator[Verdict]:
    """One verdict for each listener that this configuration opens.

    A `fixed` endpoint's port was named by a person, and may not be another one.
    """
    running = discovery.read()
    found, own = list[Verdict](), dict[int, str]()
    with ExitStack() as held:
        for listener in opened(config):
            found.append(_port(listener, held, own, None if running is None else running.pid, fixed))
    yield from found


def _port(
    listener: Listener, held: ExitStack, own: dict[int, str], running: int | None, fixed: frozenset[str]
) -> Verdict:
    """What becomes of one listener; its socket is left open in `held`, its port noted in `own`."""
    path, may_move = listener.path, listener.endpoint not in fixed
    try:
        wanted = parse(listener.endpoint)
        got = listen(wanted)
    except (AddressError, OSError) as error:
        return failure(AREA, f"{path}: {error}", f"give {path} an address of this machine")
    held.callback(got.sock.close)
    if got.moved is None:
        own[got.address.port] = path
        return ok(AREA, f"{wanted} is free ({path})")
    by = f"{own[wanted.port]} of this configuration" if wanted.port in own else holder(wanted.port)
    if running is not None and f"(pid {running})" in by:
        return ok(AREA, f"{wanted} is served by the running collector, pid {running} ({path})")
    if not may_move:
        return failure(
            AREA,
            f"{wanted} is held by {by} ({path})",
            f"stop it, or set {path} to another port; `collect` does not start",
        )
    own[got.address.port] = path
    return warning(
        AREA,
        f"{wanted} is held by {by} ({path})",
        f"stop it, or set {path}; `collect` would take {got.address} and announce it",
    )

"""Ports: is each address of the configuration free, held by our own collector, or by whom."""

from collections.abc import Iterator
from typing import Final

from overwatch import discovery
from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.collector.net import AddressError, holder, listen, parse
from overwatch.collector.settings import CollectorConfig, listeners

AREA: Final = "ports"


def ports(config: CollectorConfig, fixed: frozenset[str] = frozenset()) -> Iterator[Verdict]:
    """One verdict for each listener; sockets are opened and closed at once.

    A `fixed` endpoint's port was named by a person, and may not be another one.
    """
    running = discovery.read()
    for listener in listeners(config):
        try:
            wanted = parse(listener.endpoint)
            got = listen(wanted)
        except (AddressError, OSError) as error:
            yield failure(
                AREA, f"{listener.path}: {error}", f"give {listener.path} an address of this machine"
            )
            continue
        got.sock.close()
        if got.moved is None:
            yield ok(AREA, f"{wanted} is free ({listener.path})")
            continue
        who = holder(wanted.port)
        if running is not None and f"(pid {running.pid})" in who:
            yield ok(
                AREA, f"{wanted} is served by the running collector, pid {running.pid} ({listener.path})"
            )
        elif listener.endpoint in fixed:
            yield failure(
                AREA,
                f"{wanted} is held by {who} ({listener.path})",
                f"stop it, or set {listener.path} to another port; `collect` does not start",
            )
        else:
            yield warning(
                AREA,
                f"{wanted} is held by {who} ({listener.path})",
                f"stop it, or set {listener.path}; `collect` would take {got.address} and announce it",
            )

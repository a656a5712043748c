"""The seam between the sender and a protocol, and the one place that knows which protocols there are.

Rules: a transport tries once and reports what became of it; it never raises for what a collector does. Must
not know queues or retries.
"""

from collections.abc import Mapping
from typing import Protocol

from overwatch.delivery.destination import Destination
from overwatch.delivery.request import Answer, Parcel
from overwatch.journal import Signal


class Transport(Protocol):
    """Gives requests to a collector, one at a time."""

    def send(self, request: Parcel, deadline: float) -> Answer:
        """Try once; answers by `deadline` (monotonic seconds) or the destination's own timeout."""

    def close(self) -> None:
        """From any thread: a try in flight ends at once as `AGAIN`, and so does every later one."""


def transport_to(destinations: Mapping[Signal, Destination]) -> Transport:
    """A transport for some signals; a request of another signal is refused."""
    by_http = {signal: to for signal, to in destinations.items() if to.protocol != "grpc"}
    by_grpc = {signal: to for signal, to in destinations.items() if to.protocol == "grpc"}
    if not by_grpc:
        from overwatch.delivery.http import HttpTransport

        return HttpTransport(by_http)
    from overwatch.delivery.grpc import GrpcTransport

    if not by_http:
        return GrpcTransport(by_grpc)
    from overwatch.delivery.http import HttpTransport

    return _Both(GrpcTransport(by_grpc), frozenset(by_grpc), HttpTransport(by_http))


class _Both:
    """Some signals over gRPC, the others over HTTP."""

    def __init__(self, by_grpc: Transport, signals: frozenset[Signal], by_http: Transport) -> None:
        self._by_grpc = by_grpc
        self._signals = signals
        self._by_http = by_http

    def send(self, request: Parcel, deadline: float) -> Answer:
        """Try once, over the signal's protocol."""
        chosen = self._by_grpc if request.signal in self._signals else self._by_http
        return chosen.send(request, deadline)

    def close(self) -> None:
        """End both."""
        self._by_grpc.close()
        self._by_http.close()

"""A stream of leases from one server, made again whenever it breaks.

Rules: the server has at most as many credits as leases still have room here; after a break it is asked for
what comes after the last lease that arrived, so that none is lost and none comes twice. Must not know other
servers.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.base import LeaseOf
from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.replay.connection import Connection, ReplayError


class LeaseStream:
    """Give what arrives, or the error that ends it, to `arrived`."""

    def __init__(
        self,
        line: Connection,
        request: pb.LeaseRequest,
        depth: int,
        arrived: Callable[[LeaseOf | Exception], None],
    ) -> None:
        self._line = line
        self._request = request
        self._depth = depth
        self._arrived = arrived
        self._waiting = 0
        """Leases that arrived and were not taken."""
        self._granted = 0
        """Leases that the server may still send."""
        self._lock = asyncio.Lock()
        self._call: Any = None
        self._encoding: Encoding | None = None

    async def run(self) -> None:
        """Until it is cancelled, or the server refuses."""
        try:
            while True:
                await self._line.retried(self._once, is_early=True)
        except (ReplayError, ValueError) as error:
            self._arrived(error)

    async def _once(self, _seconds: float) -> None:
        call = self._line.stream()
        self._granted = 0
        try:
            await self._grant(call, self._request)
            self._call = call
            await self._grant(call)
            async for answer in call:
                encoding = await self._encoding_of(answer.lease.encoding_hash)
                found = messages.lease_of(answer.lease, self._request.learner, encoding)
                self._line.well()
                self._request.after = found.number
                self._granted -= 1
                self._waiting += 1
                self._arrived(found)
        finally:
            self._call = None
            call.cancel()

    async def _grant(self, call: Any, begin: pb.LeaseRequest | None = None) -> None:
        """As many credits as there is room for, once that is half of the depth: a message costs."""
        async with self._lock:
            credit = self._depth - self._waiting - self._granted
            if begin is not None or 2 * credit >= self._depth:
                self._granted += credit
                await call.write(pb.SampleStreamRequest(lease=begin, credits=credit))

    async def _encoding_of(self, hash_: str) -> Encoding:
        if self._encoding is None or self._encoding.hash != hash_:
            request = pb.GetEncodingRequest(table=self._request.table)
            answer = await self._line.call("GetEncoding", request, 30.0)
            self._encoding = messages.encoding_of(answer.encoding)
        if self._encoding.hash != hash_:
            raise ReplayError(
                f"a lease of {self._request.table!r} has encoding {hash_!r}, its table {self._encoding.hash}",
                grpc.StatusCode.DATA_LOSS,
            )
        return self._encoding

    async def took(self) -> None:
        """One that arrived was taken: there is room for another."""
        self._waiting -= 1
        if self._call is not None:
            # One that breaks now is made again, with all credits.
            with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await self._grant(self._call)

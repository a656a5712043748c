"""The client for a program without an event loop, such as an actor: one runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from overwatch.sdk import Run
from overwatch_rl.replay.base import TableStats
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.client import USUAL_S, Access, Appended, Patience, ReplayClient, State

T = TypeVar("T")


class BlockingReplayClient:
    """`ReplayClient` for any thread; `close` it. `on_state` is called in the thread of the loop."""

    def __init__(
        self,
        servers: Sequence[str],
        access: Access | None = None,
        patience: Patience | None = None,
        *,
        on_state: Callable[[State, str], None] = lambda _state, _why: None,
        run: Run | None = None,
    ) -> None:
        self._client = ReplayClient(servers, access, patience, on_state=on_state, run=run)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replay-client", daemon=True)
        self._thread.start()

    @property
    def state(self) -> State:
        """Whether all servers answer."""
        return self._client.state

    def declare(self, table: str, encoding: Encoding, timeout_s: float = USUAL_S) -> None:
        """See `ReplayClient.declare`."""
        self._wait(self._client.declare(table, encoding, timeout_s))

    def append(self, table: str, chunks: Sequence[Chunk], timeout_s: float = USUAL_S) -> Appended:
        """See `ReplayClient.append`."""
        return self._wait(self._client.append(table, chunks, timeout_s))

    def stats(self, timeout_s: float = USUAL_S) -> list[list[TableStats]]:
        """See `ReplayClient.stats`."""
        return self._wait(self._client.stats(timeout_s))

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Its result; an interrupt of the program ends the call, too."""
        waiting = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        """End connections and the thread. A second call does nothing."""
        if self._thread.is_alive():
            self._wait(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

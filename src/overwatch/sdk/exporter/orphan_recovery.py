"""What dead producers left behind: rings that were not read to their end, spools that no process delivers.

Rules: what a living process still has a hand on is left alone; what is delivered is removed, what is not
stays for the next time. Must not know who asks.
"""

import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from overwatch.delivery.sender import DeliveryLog, Sender
from overwatch.delivery.transport import OtlpTransport
from overwatch.journal import FolderBusyError, Signal
from overwatch.sdk.exporter.core import Exporter, ShutdownSignal, destinations, open_spool
from overwatch.sdk.exporter.spool import Orphan, Spool, orphans, spool_root
from overwatch.sdk.frames import Hello, Progress
from overwatch.sdk.greeting import SUFFIX, GreetingError, forget_hello, is_meant, read_hello
from overwatch.sdk.rings.file import RingError
from overwatch.sdk.rings.ringset import places, remove
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.trainer_env import env_of

log: Final = logging.getLogger("overwatch.exporter")

_STOP_S: Final = 0.5
_LEAST_S: Final = 1.0


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one producer's records that were left behind."""

    run_id: str
    records: int
    """That the collector has now."""
    kept: int
    """That still wait."""
    is_done: bool
    """Nothing of it is left."""
    dropped: dict[str, int]
    """That are gone, by reason."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where something goes that was left."""

    endpoint: str | None
    env: dict[str, str] | None
    """See `overwatch.sdk.trainer_env`; `None` of a version that kept none."""

    def ends(self) -> dict[Signal, tuple[object, ...]] | None:
        """What two routes have in common that lead to the same server with the same headers."""
        if self.env is None:
            return None
        ways = destinations(self.endpoint, self.env)
        return {signal: (to.protocol, to.origin, to.path, to.headers_now) for signal, to in ways.items()}


def deliver_all(
    root: Path | None, endpoint: str | None, timeout_s: float, *, same: Route | None = None,
    env: Mapping[str, str] = os.environ,
) -> Iterator[Delivered]:  # fmt: skip
    """Deliver all that was left on this machine, within `timeout_s` in all.

    `endpoint` is where to, by this process's environment; else it goes where the trainer wanted it. `root`
    holds the spools, or is one; without it `env` states where spools and rings lie. With `same` only what
    would go the same route is touched.
    """
    deadline = time.monotonic() + timeout_s
    tried: set[str] = set()

    def chosen(left: Route) -> Route | None:
        if endpoint is not None:
            return Route(endpoint=endpoint, env=None)
        return left if same is None or (left.env is not None and left.ends() == same.ends()) else None

    if root is None:
        for rings in left_rings(env):
            tried.add(str(rings))
            yield from _spool_rings(rings, chosen, _share(deadline))
    for orphan in left_spools(spool_root(env) if root is None else root):
        route = chosen(Route(endpoint=orphan.meta.endpoint, env=orphan.meta.otlp_env))
        if orphan.meta.rings not in tried and route is not None:
            yield from _deliver(orphan, route, _share(deadline))


def _share(deadline: float) -> float:
    """What one producer may take of the time that is left: never all of it, always a moment."""
    return max((deadline - time.monotonic()) / 2, _LEAST_S)


def left_rings(env: Mapping[str, str] = os.environ) -> list[Path]:
    """The rings of this user on this machine whose trainer is dead."""
    found = [path for folder in places(env) for path in sorted(folder.glob(f"*{SUFFIX}")) if _is_own(path)]
    return [rings for rings in (path.with_suffix("") for path in found) if not is_meant(rings)]


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def left_spools(root: Path) -> list[Orphan]:
    """The spools under `root`, or at it, that no process holds and no living trainer will fill."""
    found = orphans(root) or [orphan for orphan in orphans(root.parent) if orphan.path == root]
    return [orphan for orphan in found if orphan.meta.rings is None or not is_meant(Path(orphan.meta.rings))]


class _Now(ShutdownSignal):
    """The shutdown of a trainer that is gone."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def wait(self, timeout_s: float) -> float | None:  # noqa: ARG002 there is nothing to wait for
        """The deadline."""
        return self._deadline


def _spool_rings(
    rings: Path, chosen: Callable[[Route], Route | None], timeout_s: float
) -> Iterator[Delivered]:
    """Read a dead trainer's rings to their end, and deliver what it left."""
    try:
        hello = read_hello(rings)
        route = chosen(Route(endpoint=hello.endpoint, env=hello.otlp_env))
        if route is None:
            return
        source = RingSource(rings, alone=True)
    except BlockingIOError:
        return
    except FileNotFoundError:  # another process has delivered and removed them, or most of them
        remove(rings)
        forget_hello(rings)
        return
    except (OSError, RingError, GreetingError) as error:
        log.warning("rings at %s cannot be read: %s", rings, error)
        return
    try:
        spool = open_spool(hello, rings)
    except FolderBusyError:
        source.close()
        return
    reported: list[Progress] = [Progress()]
    # A trainer that is dead: this machine is not sampled for it.
    quiet = msgspec.structs.replace(hello, sample=False, endpoint=route.endpoint, otlp_env=route.env)
    exporter = Exporter(quiet, source, spool, reported.append)
    exporter.run(_Now(time.monotonic() + timeout_s))
    if exporter.is_emptied:
        remove(rings)
        forget_hello(rings)
    source.close()
    yield _delivered(hello.run_id, spool)


def _deliver(orphan: Orphan, route: Route, timeout_s: float) -> Iterator[Delivered]:
    try:
        spool = Spool(orphan.path)
    except FolderBusyError:
        return
    if not spool.is_empty:
        ways = destinations(route.endpoint, route.env)
        sender = Sender(spool, lambda: OtlpTransport(ways), DeliveryLog(None))
        sender.start()
        sender.drain(timeout_s)
        sender.stop(_STOP_S)
    spool.close(discard=True)
    yield _delivered(orphan.meta.run_id, spool)


def _delivered(run_id: str, spool: Spool) -> Delivered:
    books = spool.books
    return Delivered(
        run_id=run_id,
        records=books.delivered,
        kept=books.waiting,
        is_done=spool.is_empty,
        dropped=dict(books.dropped),
    )


class OrphanRecovery:
    """Delivers what others left and what goes one's own route, once one's own delivery has succeeded."""

    def __init__(self, hello: Hello, timeout_s: float = 30.0) -> None:
        self._own = Route(endpoint=hello.endpoint, env=hello.otlp_env)
        self._env = env_of(hello)
        self._timeout_s = timeout_s
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Once; the thread ends with the process."""
        if self._thread is None:
            run = contextvars.copy_context().run  # what it logs is for the same trainer
            self._thread = threading.Thread(
                target=run, args=(self._run,), name="overwatch-recovery", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        try:
            for found in deliver_all(None, None, self._timeout_s, same=self._own, env=self._env):
                if found.records:
                    log.warning("delivered %d records that run %s had left", found.records, found.run_id)
        except OSError as error:
            log.warning("what others left could not be delivered: %s", error)

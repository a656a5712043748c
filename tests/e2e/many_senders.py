"""Many live runs of one light program: `python -m tests.e2e.many_senders PLAN`, a JSON object of `Plan`.

It sends as an exporter does, without one: each run has a connection, a record of its newest update and one of
its envs for each tenth of a second, a request each 0.3 s with all that waited meanwhile, repeated until it is
acknowledged. Each run ends with its end record. Prints `ready` once all runs are connected,
`probe RUN NANOSECONDS` as a run emits a number that is not finite, and as its last line the `Account`.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from urllib.parse import urlsplit

from msgspec.structs import replace

from overwatch.catalog import Scope
from overwatch.events import Event, Measured, NonFiniteSeen, Origin, Record, RunFinished
from overwatch.otlp.encode import request
from tests import fakes
from tests.e2e.many_runs import print_now

SEND_S = 0.3
NUMBERS = ("kl_divergence", "entropy", "clip_fraction", "explained_variance", "grad_norm", "policy_loss",
           "value_loss", "learning_rate", "return_mean", "update_time", "kl_max", "kl_joint")  # fmt: skip
VARIANTS = 32
"""Updates and columns that come in turn: a program that makes each anew is slower than the collector."""
OK, BROKEN = 200, 0
RETRIED = frozenset({429, 503, BROKEN})
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """What the program does."""

    endpoint: str
    runs: int
    envs: int = 64
    hz: float = 10.0
    seconds: float = 10.0
    name: str = "run"
    probes: int = 0
    """Runs that emit a number that is not finite, one after the other over the whole time."""


@dataclass(slots=True)
class Account:
    """What became of all that was emitted."""

    emitted: int = 0
    acknowledged: int = 0
    requests: int = 0
    bytes: int = 0
    """Of acknowledged bodies."""
    refused: dict[int, int] = field(default_factory=dict)
    """Answers that were followed by the same request."""
    behind_s: float = 0.0
    """The longest that a record waited for its request to be sent first."""


class Emitting:
    """One run."""

    def __init__(self, plan: Plan, number: int, account: Account) -> None:
        self._plan, self._number, self._account = plan, number, account
        self.run_id = f"{plan.name}-{number}"
        self._origin = Origin(run_id=self.run_id, epoch=f"epoch-{self.run_id}", ours=True)
        self._seq = 0
        self._connection = Connection(plan.endpoint)
        self._updates, self._columns = _updates(), _columns(plan.envs)
        self._broken_at = plan.seconds * (number + 1) / (plan.probes + 2) if number < plan.probes else None

    async def live(self, everybody: asyncio.Barrier) -> None:
        """From the start record to the end record."""
        await self._deliver([fakes.started(time.time_ns(), n_envs=self._plan.envs)])
        await everybody.wait()
        began, step, steps = time.monotonic(), 0, round(self._plan.seconds * self._plan.hz)
        due = began + SEND_S * self._number / self._plan.runs
        while step < steps:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            self._account.behind_s = max(self._account.behind_s, now - due)
            due = max(due, now) + SEND_S
            reached = min(steps, int((now - began) * self._plan.hz) + 1)
            events = [event for one in range(step + 1, reached + 1) for event in self._step(one, now - began)]
            step = reached
            await self._deliver(events)
        await self._deliver([RunFinished(at=time.time_ns(), outcome="completed")])
        self._connection.close()

    def _step(self, step: int, after_s: float) -> list[Event]:
        at = time.time_ns()
        events: list[Event] = [
            replace(self._updates[step % VARIANTS], at=at, index=step),
            replace(self._columns[step % VARIANTS], at=at, index=step),
        ]
        if self._broken_at is not None and after_s >= self._broken_at:
            self._broken_at = None
            print_now("probe", self.run_id, at)
            events.append(NonFiniteSeen(at=at, scope=Scope.POLICY, metric="kl_divergence", kind="nan"))
        return events

    async def _deliver(self, events: list[Event]) -> None:
        first = self._seq + 1
        self._seq += len(events)
        self._account.emitted += len(events)
        records = [Record(origin=self._origin, event=e, seq=first + i) for i, e in enumerate(events)]
        body = request(records, {})
        while (status := await self._connection.post(body)) != OK:
            assert status in RETRIED
            self._account.refused[status] = self._account.refused.get(status, 0) + 1
            await asyncio.sleep(self._connection.pause_s)
        self._account.acknowledged += len(events)
        self._account.requests += 1
        self._account.bytes += len(body)


class Connection:
    """To the collector; made anew where it broke."""

    def __init__(self, endpoint: str) -> None:
        self._place = urlsplit(endpoint)
        self._head = (
            f"POST /v1/logs HTTP/1.1\r\nHost: {self._place.netloc}\r\n"
            "Content-Type: application/x-protobuf\r\nContent-Length: "
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.pause_s = PAUSE_S
        """How long the last answer asks to wait before the next request."""

    async def post(self, body: bytes) -> int:
        """The status of the answer, `BROKEN` where none came."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._place.hostname, self._place.port)
            reader, writer = self._streams
            writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
            found = (await reader.readuntil(b"\r\n\r\n")).lower()
            lines = found.split(b"\r\n")
            heads = dict(line.split(b": ", 1) for line in lines[1:] if line)
            await reader.readexactly(int(heads[b"content-length"]))
            self.pause_s = float(heads.get(b"retry-after", PAUSE_S))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return BROKEN
        return int(found[9:12])

    def close(self) -> None:
        """Let go of it."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


@cache
def _updates() -> list[Measured]:
    return [
        fakes.policy(0, None, **{name: 0.01 + 1e-6 * (31 * one + i) for i, name in enumerate(NUMBERS)})
        for one in range(VARIANTS)
    ]


@cache
def _columns(envs: int) -> list[Measured]:
    chance = random.Random(7)  # noqa: S311 numbers that do not pack
    rewards = [[chance.gauss(1.0, 0.1) for _ in range(envs)] for _ in range(VARIANTS)]
    return [fakes.envs(0, range(envs), None, reward=one) for one in rewards]


async def main(plan: Plan) -> Account:
    """All runs at once."""
    account, everybody = Account(), asyncio.Barrier(plan.runs + 1)
    async with asyncio.TaskGroup() as group:
        for number in range(plan.runs):
            group.create_task(Emitting(plan, number, account).live(everybody))
        await everybody.wait()
        print_now("ready")
    return account


if __name__ == "__main__":
    print_now(json.dumps(asdict(asyncio.run(main(Plan(**json.loads(sys.argv[1])))))))

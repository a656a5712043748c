"""A rollout handler: generates groups with the current policy and sends them, from first call to last.

    handler = Handler(Settings(url="http://127.0.0.1:8000", name="maths", group_size=8))
    handler.run(generate)        # generate(assignment) -> {"tokens": …, "masks": …, "scores": …}, or None

Owns the loop: register (and wait for the trainer), take the trainer's run for the tracker, then look at the
queue, pause or go on, ask for a ticket, generate, send. A thread renews the registration meanwhile, so that
generating may take as long as it takes. A group is sent under a key of its own until the server has it, so a
reply that was lost costs nothing and doubles nothing. With a server that issues no tickets it keeps to the
queue's size alone. Must not know torch, nor what is generated.
"""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from overwatch.catalog.services import PAUSES
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.rollouts.calls import CallError, Calls, StoppedError, Target
from overwatch_rl.rollouts.tracking import NoTracker, Tracker
from overwatch_rl.web.spans import GROUPS_A_SECOND, HEADER, Spans

RENEWALS: Final = 3
"""Calls in the time after which the server would take the handler's share."""
RESUME_AT: Final = 0.5
"""Part of the upper level at which a handler that paused goes on, so that it does not flutter around one."""
UNPROCESSABLE: Final = 422
OF_THE_GROUP: Final = frozenset({413, UNPROCESSABLE, 500})
"""Statuses that are about what was sent: the next group may be right."""
LAST_CALL_S: Final = 5.0
"""So long the server has to take a disconnection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What to generate."""

    lineage: int
    number: int
    """The version of the policy to generate with."""
    step: int
    """Batches that the trainer has got."""
    ticket: int | None
    """Permission of the server; `None` of one that issues none."""
    group_size: int
    part: Callable[[str], AbstractContextManager[object]] = nullcontext
    """`with assignment.part("rl.reward"):` measures a part of generating, where this group has a span."""


Kind: TypeAlias = Literal[
    "waiting",  # for the trainer to ask for its first batch
    "registered",
    "paused",
    "resumed",
    "held",  # no ticket is free
    "freed",
    "sent",
    "refused",
    "failed",  # nothing was generated
    "retrying",
    "forgotten",  # the server does not know this handler any more
    "disconnected",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that changed: what, a sentence, and its numbers."""

    kind: Kind
    message: str
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One handler."""

    url: str
    name: str
    """What it wishes to be called; the server appends a number."""
    group_size: int
    """Sequences of a group."""
    weight: float = 1.0
    minimum: float | None = None
    """Share of every batch that is kept for it while it has groups."""
    max_token_length: int = 0
    off_policy_tolerance: float = 3.0
    """Batches in the queue above which it pauses."""
    poll_s: float = 1.0
    """How often the queue is looked at while it pauses."""
    token: str | None = None
    ca: Path | None = None
    """PEM: the authorities of an https server, beside those of the system."""
    patience_s: float = 3_600.0
    """So long a server that is away is waited for."""
    traceparent: Callable[[], str] | None = None
    """Gives the span that a call belongs to."""

    def __post_init__(self) -> None:
        for name in ("group_size", "off_policy_tolerance", "poll_s", "weight"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")


Group: TypeAlias = Mapping[str, Any]
Generate: TypeAlias = Callable[[Assignment], Group | None]


@dataclass(slots=True)
class _Registered:
    """What the server answered to a registration."""

    env_id: int
    name: str
    num_steps: int
    lease_s: float | None
    """`None` of a server that has no leases, and issues no tickets either."""
    pauses_above: float
    """Sequences in the queue."""


class Handler:
    """One environment of the rollouts API."""

    def __init__(
        self,
        settings: Settings,
        tracker: Tracker | None = None,
        happened: Callable[[Happened], None] = lambda _: None,
        run: Run | None = None,
    ) -> None:
        """`happened` is called from `run` with whatever changes.

        With a `run` pauses are counted, and one group a second is a trace that the server goes on with.
        """
        self._settings = settings
        self._run = run
        self._spans = Spans(run, GROUPS_A_SECOND)
        self._tracker = tracker or NoTracker()
        self._happened = happened
        self._stop = threading.Event()
        self._calls = self._line()
        self._states: dict[str, bool] = {}
        self._ticket: tuple[int, int, int] | None = None
        """Ticket, lineage and number that were not used yet: a generation that failed leaves its own."""

    def stop(self) -> None:
        """End `run` after the group that is being generated; from any thread."""
        self._stop.set()

    def run(self, generate: Generate) -> None:
        """Generate and send until training is done or `stop` is called.

        Raises `CallError` where the server refuses the handler itself, or is away for longer than its
        patience. A group that the server refuses is reported, and the next one is generated.
        """
        try:
            while not self._stop.is_set() and self._life(generate):
                pass
        except StoppedError:
            pass
        finally:
            self._calls.close()

    def _life(self, generate: Generate) -> bool:
        """From registration to disconnection; whether another one follows, as the server forgot this one."""
        registered = self._register()
        is_known = True
        try:
            with self._renewed(registered):
                while not self._stop.is_set() and not self._turn(registered, generate):
                    pass
        except CallError as error:
            if not _is_forgotten(error):
                raise
            is_known = False
            self._emit("forgotten", str(error))
            self._ticket = None
        finally:
            if is_known:
                self._disconnect(registered)
            self._tracker.finish()
        return not is_known

    def _register(self) -> _Registered:
        settings = self._settings
        body = {
            "desired_name": settings.name,
            "group_size": settings.group_size,
            "weight": settings.weight,
            "max_token_length": settings.max_token_length,
            "min_batch_allocation": settings.minimum,
        }
        while (reply := self._calls.post("/register-env", body))["status"] != "success":
            self._change("waiting", None, now=True, message="the trainer has not asked for a batch yet")
            self._sleep(reply.get("retry_s", settings.poll_s))
        self._states.clear()
        size = self._calls.get("/info")["batch_size"]
        run = self._calls.get("/wandb_info")
        self._tracker.start(run["project"], run["group"], reply["wandb_name"])
        unreachable = reply.get("unreachable")
        self._emit("registered", f"as {reply['wandb_name']}" + (f"; {unreachable}" if unreachable else ""))
        return _Registered(
            env_id=reply["env_id"],
            name=reply["wandb_name"],
            num_steps=reply["num_steps"],
            lease_s=reply.get("lease_s"),
            pauses_above=settings.off_policy_tolerance * size,
        )

    def _turn(self, registered: _Registered, generate: Generate) -> bool:
        """Look, and generate and send one group where that is wanted; whether training is done."""
        status = _status(self._calls, registered.env_id)
        step = status["current_step"]
        queued = status.get("queued_sequences", status["queue_size"] * self._settings.group_size)
        if status.get("done", step >= registered.num_steps >= 0):
            return True
        above, was_paused = registered.pauses_above, self._states.get("paused", False)
        paused = queued > (above * RESUME_AT if was_paused else above)
        numbers = {"queued_sequences": float(queued), "threshold": above}
        if paused and not was_paused and self._run is not None:
            self._run.count(PAUSES.name, env=registered.name)
        self._change("paused", "resumed", now=paused, message=f"{queued} sequences queued", values=numbers)
        self._tracker.log({"queue/sequences": queued, "queue/paused": float(paused)}, step)
        if paused and self._ticket is None:
            self._sleep(self._settings.poll_s)
            return False
        assignment = self._assigned(registered, step)
        if assignment is not None and not self._stop.is_set():
            with self._spans.root("rollouts.group") as span:
                self._generate(registered, generate, assignment, span)
        return False

    def _assigned(self, registered: _Registered, step: int) -> Assignment | None:
        """The next thing to generate; `None` where no ticket is free, once it was waited for."""
        size = self._settings.group_size
        if registered.lease_s is None:
            return Assignment(lineage=0, number=step, step=step, ticket=None, group_size=size)
        if self._ticket is None:
            reply = self._calls.post("/admit", {"env_id": registered.env_id, "groups": 1})
            is_held = not reply["tickets"]
            self._change("held", "freed", now=is_held, message="all that may be generated is being generated")
            if is_held:
                self._sleep(reply["retry_s"])
                return None
            version = reply["version"]
            self._ticket = (reply["tickets"][0], version["lineage"], version["number"])
        ticket, lineage, number = self._ticket
        return Assignment(lineage=lineage, number=number, step=step, ticket=ticket, group_size=size)

    def _generate(
        self, registered: _Registered, generate: Generate, assignment: Assignment, span: Span | None
    ) -> None:
        with self._spans.part(span, "rl.sample") as sampling:
            group = generate(replace(assignment, part=partial(self._spans.part, sampling)))
        if group is None:
            self._emit("failed", "nothing was generated")
            self._sleep(self._settings.poll_s)
            return
        self._ticket = None
        body = {**group, "env_id": registered.env_id}
        if assignment.ticket is not None:
            body.setdefault("version", {"lineage": assignment.lineage, "number": assignment.number})
            body["ticket"] = assignment.ticket
        sequences, tokens = len(body["tokens"]), sum(map(len, body["tokens"]))
        numbers = {"sequences": float(sequences), "tokens": float(tokens)}
        try:
            with self._spans.part(span, "rollouts.send") as sending:
                headers = {} if sending is None else {HEADER: sending.traceparent}
                headers["Idempotency-Key"] = uuid.uuid4().hex
                reply = self._calls.post("/scored_data", body, headers)
        except CallError as error:
            if error.status not in OF_THE_GROUP or _is_forgotten(error):
                raise
            self._emit("refused", str(error), numbers)
            return
        if self._run is not None:
            self._run.count("groups_sent")
        scores = body["scores"]
        mean = sum(scores) / len(scores)
        self._emit("sent", f"group {reply.get('id', '')}", {**numbers, "score": mean})
        self._tracker.log({"group/score": mean, "group/tokens": float(tokens)}, assignment.step)

    def _disconnect(self, registered: _Registered) -> None:
        """Leave, with one try: a server that is away notices the silence."""
        calls = Calls(self._target(patience_s=0.0, timeout_s=LAST_CALL_S))
        with contextlib.closing(calls), contextlib.suppress(CallError):
            calls.post("/disconnect-env", {"env_id": registered.env_id})
        self._emit("disconnected", registered.name)

    @contextlib.contextmanager
    def _renewed(self, registered: _Registered) -> Iterator[None]:
        """Renew from a thread, whatever the handler does meanwhile."""
        if registered.lease_s is None:
            yield
            return
        over = threading.Event()
        every_s = registered.lease_s / RENEWALS
        thread = threading.Thread(
            target=self._renew, args=(registered.env_id, every_s, over), name="rollouts-renew", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(LAST_CALL_S)

    def _renew(self, env_id: int, every_s: float, over: threading.Event) -> None:
        """A renewal that fails is the main loop's to notice, when it calls next."""
        with contextlib.closing(Calls(self._target(patience_s=0.0, timeout_s=every_s))) as calls:
            while not over.wait(every_s):
                with contextlib.suppress(CallError):
                    _status(calls, env_id)

    def _target(self, **how: Any) -> Target:
        settings = self._settings
        return Target(url=settings.url, token=settings.token, ca=settings.ca, **how)

    def _line(self) -> Calls:
        return Calls(
            self._target(
                patience_s=self._settings.patience_s,
                traceparent=self._settings.traceparent,
                stop=self._stop,
                retrying=lambda why, wait_s: self._emit("retrying", why, {"wait_s": wait_s}),
            )
        )

    def _sleep(self, seconds: float) -> None:
        if self._run is not None:
            self._run.count("waited_s", seconds)
        self._stop.wait(seconds)
        if self._stop.is_set():
            raise StoppedError("stopped")

    def _emit(self, kind: Kind, message: str, values: Mapping[str, float] | None = None) -> None:
        self._happened(Happened(kind=kind, message=message, values=values or {}))

    def _change(
        self,
        on: Kind,
        off: Kind | None,
        *,
        now: bool,
        message: str,
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Report a state that began or ended, and not one that goes on."""
        if self._states.get(on, False) == now:
            return
        self._states[on] = now
        kind = on if now else off
        if kind is not None:
            self._emit(kind, message, values)


def _status(calls: Calls, env_id: int) -> dict[str, Any]:
    """The queue as this handler sees it; servers read the id from either place."""
    found: dict[str, Any] = calls.get(f"/status-env?env_id={env_id}", {"env_id": env_id})
    return found


def _is_forgotten(error: CallError) -> bool:
    """Whether the server does not know the environment: it was reset, or begun anew."""
    path = error.body.get("path") if isinstance(error.body, dict) else None
    return error.status == UNPROCESSABLE and path == "env_id"

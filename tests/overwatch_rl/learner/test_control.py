"""How a learner obeys: the mailbox, both its ends, and a real orchestrator."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from overwatch_rl.learner.control import (
    AttendSettings,
    Beat,
    Control,
    ControlLostError,
    Mailbox,
    Progress,
    attend,
)
from overwatch_rl.orchestrator.client import Calling, OrchestratorClient
from overwatch_rl.orchestrator.commands import (
    Change,
    Command,
    Done,
    Issued,
    Pause,
    Resume,
    Terminate,
    Tune,
)
from overwatch_rl.orchestrator.states import Pace
from tests.overwatch_rl.orchestrator.serving import Turned
from tests.overwatch_rl.orchestrator.threaded import PATIENCE_S, Operator, in_thread
from tests.overwatch_rl.rollouts.threaded import proxied

FAST = Pace(least_s=0.01)
OFTEN = AttendSettings(heartbeat_s=0.05, wait_s=5.0, last_s=5.0)
AT = Progress(lineage=0, step=0)


class Learner:
    """Does what it is asked, and remembers."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {"learning_rate": 3e-4, "clip": 0.2}
        self.did: list[str] = []

    def tune(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Set what there is."""
        unknown = set(values) - set(self.values)
        if unknown:
            raise ValueError(f"this algorithm has no {min(unknown)}")
        before = {name: self.values[name] for name in values}
        self.values |= values
        self.did.append("tune")
        return before

    def drain(self) -> None:
        """Wait."""
        self.did.append("drain")

    def refill(self) -> None:
        """Go on."""
        self.did.append("refill")

    def last_checkpoint(self) -> str | None:
        """Save."""
        self.did.append("checkpoint")
        return "000-00000009"


class Pair:
    """The training thread's side, without an orchestrator."""

    def __init__(self, **how: Any) -> None:
        self.learner = Learner()
        self.mailbox = Mailbox(AT)
        self.control = Control(self.mailbox, self.learner, **how)
        self.numbers = 0

    def send(self, command: Command) -> str:
        """Deliver a command; its id."""
        self.numbers += 1
        self.mailbox.deliver(Issued(id=str(self.numbers), command=command))
        return str(self.numbers)


def test_without_a_command_training_goes_on_at_once() -> None:
    """And its progress is what a heartbeat carries."""
    pair = Pair()

    assert (
        pair.control.between(Progress(lineage=2, step=7, loss=0.5, notes="degraded: replay is away")) is None
    )
    beat = pair.mailbox.heartbeat("r")
    assert (beat.run_id, beat.status, beat.step, beat.lineage, beat.loss, beat.notes) == (
        "r", "running", 7, 2, 0.5, "degraded: replay is away",
    )  # fmt: skip
    assert pair.learner.did == []


def test_a_tune_is_set_between_updates_and_reports_what_it_changed() -> None:
    """Recorded by who asks for it."""
    recorded: list[Done] = []
    pair = Pair(obeyed=lambda _, done: recorded.append(done))
    number = pair.send(Tune(values={"clip": 0.1}))

    assert pair.mailbox.heartbeat("r").queued_commands == 1
    assert pair.control.between(AT) is None
    done = pair.mailbox.answered(number)
    assert done is not None
    assert (done.outcome, done.changes) == ("done", {"clip": Change(before=0.2, after=0.1)})
    assert pair.learner.values["clip"] == 0.1
    assert recorded == [done]


@pytest.mark.parametrize(
    ("values", "stated"),
    [({"clip": 0.9}, "values.clip: is 0.9"), ({"entropy_coef": 0.01}, "this algorithm has no entropy_coef")],
)
def test_a_tune_that_cannot_be_is_refused_and_training_goes_on(values: dict[str, float], stated: str) -> None:
    """Beyond the bounds, or not known to the algorithm."""
    pair = Pair()
    number = pair.send(Tune(values=values))

    assert pair.control.between(AT) is None
    done = pair.mailbox.answered(number)
    assert done is not None
    assert done.outcome == "refused"
    assert stated in done.detail
    assert pair.learner.did == []


def test_a_pause_drains_and_waits_until_it_is_resumed() -> None:
    """Commands are obeyed meanwhile; a second pause does nothing more."""
    pair = Pair()
    for command in (Pause(), Tune(values={"clip": 0.1}), Pause(), Resume()):
        pair.send(command)

    assert pair.control.between(AT) is None
    assert pair.learner.did == ["drain", "tune", "refill"]
    assert [pair.mailbox.answered(str(number)).detail for number in (1, 3, 4)] == [  # type: ignore[union-attr]
        "drained; nothing is sampled", "was paused already", "samples again",
    ]  # fmt: skip


def test_a_terminate_writes_a_last_checkpoint_and_ends() -> None:
    """From a pause too; what was answered names the version."""
    for before in ([], [Pause()]):
        pair = Pair()
        for command in (*before, Terminate(), Resume()):
            pair.send(command)

        assert pair.control.between(AT) == "terminated"
        assert pair.learner.did[-2:] == ["drain", "checkpoint"]
        assert pair.mailbox.heartbeat("r").status == "terminating"
        done = pair.mailbox.answered(str(len(before) + 1))
        assert done == Done(outcome="done", detail="last checkpoint 000-00000009")


def test_a_last_checkpoint_that_fails_is_answered_and_raised() -> None:
    """The operator knows; training ends with its reason."""
    pair = Pair()
    pair.learner.last_checkpoint = lambda: (_ for _ in ()).throw(OSError("the disk is full"))  # type: ignore[method-assign]
    number = pair.send(Terminate())

    with pytest.raises(OSError, match="the disk is full"):
        pair.control.between(AT)
    done = pair.mailbox.answered(number)
    assert done is not None
    assert (done.outcome, done.detail) == ("failed", "OSError('the disk is full')")


@pytest.mark.parametrize("is_paused", [False, True])
def test_the_end_of_the_other_thread_ends_training(is_paused: bool) -> None:  # noqa: FBT001
    """With its reason, in a pause too."""
    pair = Pair(is_paused=is_paused)
    pair.mailbox.fail("lineage: 0 is over")

    with pytest.raises(ControlLostError, match="lineage: 0 is over"):
        pair.control.between(AT)


def test_a_signal_ends_a_pause() -> None:
    """A run that was paused begins so."""
    pair = Pair(is_paused=True, stop=lambda: "interrupted")

    assert pair.control.between(AT) == "interrupted"
    assert pair.learner.did == ["drain"]
    assert pair.mailbox.heartbeat("r").status == "paused"


@contextlib.contextmanager
def attending(
    url: str,
    mailbox: Mailbox,
    on_heartbeat: Callable[[Beat], None] = lambda _: None,
    settings: AttendSettings = OFTEN,
) -> Iterator[threading.Thread]:
    """The I/O thread."""

    async def run() -> None:
        calling = Calling(timeout_s=10.0, deadline_s=10.0)
        async with OrchestratorClient(url, "r", calling=calling) as client:
            await attend(client, mailbox, settings, on_heartbeat)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        yield thread
    finally:
        if mailbox.outcome is None:
            mailbox.end("interrupted", AT)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def training(control: Control, updated: Callable[[int], None] = lambda _: None) -> Iterator[int]:
    """Updates one after another until control ends them."""
    step = 0
    while control.between(Progress(lineage=0, step=step)) is None:
        step += 1
        updated(step)
        yield step


def test_an_update_of_120_seconds_keeps_the_run_healthy() -> None:
    """Heartbeats go out beside it: three of them, 40 s apart by the server's clock, end the update."""
    time, healths = Turned(), []
    received = threading.Semaphore(0)

    def on_heartbeat(how: Beat) -> None:
        assert how == "ok"
        time.go(40.0)
        received.release()

    with in_thread(time=time) as server:
        operator, pair = Operator(server.url), Pair()
        operator.create()
        pair.control.between(Progress(lineage=0, step=5))
        began = time.monotonic
        with attending(server.url, pair.mailbox, on_heartbeat):
            for _ in range(4):
                assert received.acquire(timeout=PATIENCE_S)
                healths.append(operator.get("/health"))
        assert time.monotonic - began >= 120.0
        assert [(one["state"], one["health"]) for one in healths] == [("running", "healthy")] * 4
        assert operator.get()["step"] == 5
        time.go(45.0)
        assert operator.get("/health")["health"] == "stale"


def test_an_operator_tunes_pauses_resumes_and_terminates_a_learner() -> None:
    """By HTTP, without a restart: heartbeats go on in the pause, and the end is known."""
    pair, paused_beats = Pair(), threading.Semaphore(0)
    beats: list[str] = []

    def on_heartbeat(how: Beat) -> None:
        beats.append(how)
        if pair.mailbox.heartbeat("r").status == "paused":
            paused_beats.release()

    def trained() -> None:
        for _ in training(pair.control):
            pass
        pair.control.end("terminated", Progress(lineage=0, step=1 << 40))

    with in_thread(pace=FAST, clocks=_real()) as server:
        operator = Operator(server.url)
        operator.create()
        with attending(server.url, pair.mailbox, on_heartbeat) as thread:
            trainer = threading.Thread(target=trained)
            trainer.start()
            done = operator.done(operator.post("/tune", {"values": {"learning_rate": 1e-4}}))
            assert done["done"]["changes"] == {"learning_rate": {"before": 3e-4, "after": 1e-4}}
            operator.done(operator.post("/pause"))
            assert operator.get()["state"] == "paused"
            for _ in range(3):
                assert paused_beats.acquire(timeout=PATIENCE_S)
            run = operator.get()
            assert (run["state"], run["heartbeat"]["status"]) == ("paused", "paused")
            operator.done(operator.post("/resume"))
            assert operator.get()["state"] == "running"
            terminated = operator.done(operator.post("/terminate", {"reason": "enough"}))
            assert terminated["done"]["detail"] == "last checkpoint 000-00000009"
            trainer.join(PATIENCE_S)
            thread.join(PATIENCE_S)
        run = operator.get()
        assert (run["state"], run["tuned"], run["step"]) == ("terminated", {"learning_rate": 1e-4}, 1 << 40)
        assert run["heartbeat"]["status"] == "terminated"
    assert pair.learner.did == ["tune", "drain", "refill", "drain", "checkpoint"]
    assert "ok" in beats
    # A busy machine may bring two to the server at once: the second is refused as too soon, and not repeated.
    assert set(beats) <= {"ok", "late"}


def test_a_learner_that_died_in_a_pause_comes_back_paused() -> None:
    """Its first heartbeat, before any update, does not resume the run."""
    time = Turned()
    with in_thread(time=time) as server:
        operator = Operator(server.url)
        operator.create()
        body = {"run_id": "r", "step": 0}
        operator.post("/heartbeat", {**body, "status": "running"})
        time.go(15.0)
        operator.post("/heartbeat", {**body, "status": "paused"})
        record = operator.get()
        mailbox, beat = Mailbox(Progress(lineage=1, step=0)), threading.Event()
        control = Control(mailbox, Learner(), is_paused=record["state"] == "paused")
        with attending(server.url, mailbox, lambda _: beat.set()):
            assert beat.wait(PATIENCE_S)
            run = operator.get()
            assert (run["state"], run["lineage"]) == ("paused", 1)
            resumed = operator.post("/resume")
            assert control.between(Progress(lineage=1, step=0)) is None
            assert operator.done(resumed)["status"] == "done"
        assert operator.get()["state"] == "running"


def test_a_command_whose_acknowledgement_was_lost_is_done_once() -> None:
    """Its reply is cut twice, then the command is asked for again: the same answer goes out."""
    pair, cut = Pair(), [0]

    def alter(path: str, reply: dict[str, Any]) -> dict[str, Any] | None:
        if path.endswith("/ack") and cut[0] < 2:
            cut[0] += 1
            return None
        return reply

    with in_thread(pace=FAST, clocks=_real()) as server, proxied(server.url, alter) as url:
        operator = Operator(server.url)
        operator.create()
        with attending(url, pair.mailbox):
            command = operator.post("/tune", {"values": {"clip": 0.1}})
            issued = pair.mailbox.take(PATIENCE_S)
            assert issued is not None
            pair.mailbox.deliver(issued)
            pair.control.between(AT)
            assert operator.done(command)["status"] == "done"
            second = operator.post("/tune", {"values": {"clip": 0.15}})
            issued = pair.mailbox.take(PATIENCE_S)
            assert issued is not None
            assert issued.id == second["id"]
            pair.mailbox.deliver(issued)
            pair.control.between(AT)
            assert operator.done(second)["status"] == "done"
    assert cut == [2]
    assert pair.learner.did == ["tune", "tune"]


def test_a_former_life_ends_when_another_one_has_begun() -> None:
    """Its next heartbeat is refused; it must not save."""
    pair, second = Pair(), Mailbox(Progress(lineage=1, step=0))
    with in_thread(pace=FAST, clocks=_real()) as server:
        operator = Operator(server.url)
        operator.create()
        begun = threading.Event()
        with attending(server.url, second, lambda _: begun.set()):
            assert begun.wait(PATIENCE_S)
            with attending(server.url, pair.mailbox), pytest.raises(ControlLostError, match="0 is over"):
                pair.mailbox.take(PATIENCE_S)
        assert operator.get()["lineage"] == 1
    assert pair.learner.did == []


def test_a_run_that_was_terminated_before_it_began_ends_its_learner() -> None:
    """The first heartbeat is refused, and training ends as after the command."""
    pair = Pair()
    with in_thread(pace=FAST, clocks=_real()) as server:
        operator = Operator(server.url)
        operator.create()
        operator.post("/terminate")
        with attending(server.url, pair.mailbox):
            issued = pair.mailbox.take(PATIENCE_S)
            assert issued is not None
            assert "terminated → running is not legal" in issued.command.reason  # type: ignore[union-attr]
            pair.mailbox.deliver(issued)
            assert pair.control.between(AT) == "terminated"
            pair.control.end("terminated", AT)


def test_an_orchestrator_that_is_away_stops_nothing() -> None:
    """Heartbeats fail and are counted; the end waits no longer than it may."""
    pair = Pair()
    failed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    settings = AttendSettings(heartbeat_s=0.05, wait_s=0.1, last_s=0.2)
    with attending(url, pair.mailbox, lambda how: how == "error" and failed.set(), settings) as thread:  # type: ignore[func-returns-value]
        assert failed.wait(PATIENCE_S)
        for _, step in zip(range(5), training(pair.control), strict=False):
            assert step
        pair.control.end("completed", AT)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def _real() -> Any:
    from overwatch_rl.orchestrator.core import CLOCKS

    return CLOCKS

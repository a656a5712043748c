"""Bodies that are checked apart, by a thread or a process: the same answers, and nobody waits for them."""

import asyncio
import os
import signal
import time

import pytest

from overwatch.collector.decoding import SMALL_BYTES, Decoding
from overwatch.collector.intake import Accepted, Body, Intake, Reason, RefusedError
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.tally import Tally
from overwatch.events import LogLine, Severity
from overwatch.journal import Journal, MemoryJournal, Signal
from overwatch.otlp.__main__ import Asked
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import to_json
from tests.fakes import START_NS
from tests.overwatch.collector.running import eventually, run_started, told
from tests.overwatch.collector.test_limits import Gated
from tests.overwatch.collector.test_otlp_conformance import one_bad_log, span, two_bad_points
from tests.overwatch.otlp.test_elements import empties
from tests.overwatch.otlp.test_unnamed import metrics

BODIES = [
    Body(signal=Signal.LOGS, data=told("run-1", [run_started()]), transport="http"),
    Body(signal=Signal.LOGS, data=to_json(Signal.LOGS, one_bad_log()), transport="http", json=True),
    Body(signal=Signal.METRICS, data=two_bad_points(), transport="http"),
    Body(signal=Signal.TRACES, data=span(), transport="http"),
]


def intake(journal: Journal, decoding: Decoding | None = None, **limits: int) -> Intake:
    """One that takes bodies in."""
    made = Intake(journal, Tally(), LimitsConfig(**limits), decoding)
    made.open()
    return made


def with_process(own: Intake) -> Intake:
    """The same, whose helper answers."""
    asked = BODIES[0].signal, BODIES[0].data, 1000
    eventually(lambda: own._helper.ask(Asked.CHECK, *asked, is_worth_it=True))
    return own


def taken(own: Intake, bodies: list[Body]) -> list[Accepted]:
    """What their senders are told."""

    async def take_all() -> list[Accepted]:
        return [await own.take(body) for body in bodies]

    return asyncio.run(take_all())


def test_a_process_checks_as_the_collector_does() -> None:
    """Senders are told the same, the journal holds the same, and the fold takes the same, decoded already."""
    journals = [MemoryJournal(lambda: 1) for _ in range(2)]
    cursors = [journal.cursor("fold", made=True) for journal in journals]
    here, apart = (intake(journal, Decoding(), large_body_size=1) for journal in journals)
    with_process(apart)
    assert taken(apart, BODIES) == taken(here, BODIES)
    assert (here._helper.answered, apart._helper.answered) == (0, 1 + len(BODIES))
    for body, ours, theirs in zip(BODIES, *(cursor.wait(0) for cursor in cursors), strict=True):
        assert (theirs.body, theirs.items) == (ours.body, ours.items)
        assert theirs.made is not None
        said = decode(body.signal, ours.body)
        assert Decoding().take(theirs) == Decoding().take(ours) == said
    here.close()
    apart.close()


@pytest.mark.parametrize("json", [False, True], ids=["protobuf", "json"])
def test_a_process_refuses_as_the_collector_does(*, json: bool) -> None:
    """What is no request, and one of too many parts, with the same words."""
    many = b'{"resourceLogs":[' + b"{}," * 2000 + b"{}]}" if json else empties(2000)
    here, apart = (intake(MemoryJournal(lambda: 1), large_body_size=1, max_elements=1000) for _ in range(2))
    with_process(apart)
    for data, reason in ((many, Reason.TOO_LARGE), (b"\xff{", Reason.MALFORMED)):
        said: list[str] = []
        for own in (here, apart):
            with pytest.raises(RefusedError) as refused:
                taken(own, [Body(signal=Signal.LOGS, data=data, transport="http", json=json)])
            assert refused.value.reason is reason
            said.append(str(refused.value))
        assert said[0] == said[1]
    here.close()
    apart.close()


def test_a_process_that_is_killed_costs_no_body() -> None:
    """They are checked here."""
    own = with_process(intake(MemoryJournal(lambda: 1), large_body_size=1))
    assert own._helper.pid is not None
    os.kill(own._helper.pid, signal.SIGKILL)
    assert [answer.rejected for answer in taken(own, BODIES)] == [0, 1, 2, 0]
    assert own._helper.failures == 1
    own.close()


def lines(count: int) -> bytes:
    """A request of log lines."""
    at = time.time_ns()
    return told("run", [LogLine(at=at, severity=Severity.INFO, message=f"line {n}") for n in range(count)])


def test_who_crowds_others_waits_apart() -> None:
    """While bodies wait, small ones of who sends most go to the thread; another peer's pass."""
    decoding = Gated()
    own = intake(MemoryJournal(lambda: 1), decoding)
    large, small = lines(1000), lines(5)
    assert len(small) < 1000 < SMALL_BYTES < len(large)

    async def send(peer: str, data: bytes) -> Accepted:
        return await own.take(Body(signal=Signal.LOGS, data=data, transport="http", peer=peer))

    async def flood() -> None:
        await send("good", small)
        # Larger than tiny, smaller than what the gate holds up.
        crowding = [asyncio.ensure_future(send("flood", data)) for data in (large, lines(20))]
        for _ in range(20):
            await send("good", small)
        assert not any(task.done() for task in crowding)
        decoding.gate.set()
        await asyncio.gather(*crowding)

    asyncio.run(flood())
    own.close()


def test_what_is_rejected_is_answered_with_its_reason_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Items that name no run, and a time in seconds: the count and the reason, and one line of the log."""
    own = intake(MemoryJournal(lambda: 1))
    bodies = [
        metrics([], "overwatch.policy.kl_divergence", "system.cpu.utilization"),
        metrics([("rl.run.id", 5)], "overwatch.policy.kl_divergence", at=1_700_000_000 - START_NS),
    ]
    answers = taken(own, [Body(signal=Signal.METRICS, data=body, transport="http") for body in bodies])
    own.close()

    assert [answer.rejected for answer in answers] == [1, 1]
    assert "overwatch.policy.kl_divergence names no run; set rl.run.id" in answers[0].message
    assert "has time 1700000000, which is 1970-01-01" in answers[1].message
    (line,) = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert line.startswith("1 of 2 items of metrics by http from ? are rejected: overwatch.policy.kl_diverg")
    assert line.endswith("set rl.run.id, or service.name, on its resource (further ones are counted only)")

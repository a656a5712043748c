"""Bodies from the event loop and from threads: the same answers, refusals and records."""

import asyncio

import pytest

from overwatch.collector.intake import Accepted, Body, Decoding, Intake, Reason, RefusedError
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.tally import Tally
from overwatch.journal import Journal, MemoryJournal, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.jsonl import to_json
from tests.fakes import START_NS
from tests.overwatch.collector.running import reported, run_started
from tests.overwatch.collector.test_otlp_conformance import one_bad_log, span, two_bad_points
from tests.overwatch.otlp.test_origin import metrics
from tests.overwatch.otlp.test_protobuf import empties

BODIES = [
    Body(signal=Signal.LOGS, data=reported("run-1", [run_started()]), transport="http"),
    Body(signal=Signal.LOGS, data=to_json(Signal.LOGS, one_bad_log()), transport="http", json=True),
    Body(signal=Signal.METRICS, data=two_bad_points(), transport="http"),
    Body(signal=Signal.TRACES, data=span(), transport="http"),
]


def intake(journal: Journal, decoding: Decoding | None = None, **limits: int) -> Intake:
    """One that takes bodies in."""
    made = Intake(journal, Tally(), LimitsConfig(**limits), decoding)
    made.open()
    return made


def taken(own: Intake, bodies: list[Body]) -> list[Accepted]:
    """What their senders are answered."""

    async def take_all() -> list[Accepted]:
        return [await own.take(body) for body in bodies]

    return asyncio.run(take_all())


@pytest.mark.parametrize("large_body_size", [1, 1 << 20], ids=["large", "small"])
def test_a_thread_that_waits_takes_in_as_the_loop_does(large_body_size: int) -> None:
    """The answers are the same, the journal holds the same, and the fold takes the same."""
    journals = [MemoryJournal(lambda: 1) for _ in range(2)]
    cursors = [journal.cursor("fold", made=True) for journal in journals]
    loop, thread = (intake(journal, Decoding(), large_body_size=large_body_size) for journal in journals)
    assert [thread.take_blocking(body) for body in BODIES] == taken(loop, BODIES)
    for body, ours, theirs in zip(BODIES, *(cursor.wait(0) for cursor in cursors), strict=True):
        assert (theirs.body, theirs.items) == (ours.body, ours.items)
        assert Decoding().take(theirs) == Decoding().take(ours) == decode(body.signal, ours.body)
    for own in (loop, thread):
        own.close()


@pytest.mark.parametrize("json", [False, True], ids=["protobuf", "json"])
def test_a_thread_that_waits_refuses_as_the_loop_does(*, json: bool) -> None:
    """What is no request, and one of too many parts, with the same words."""
    many = b'{"resourceLogs":[' + b"{}," * 2000 + b"{}]}" if json else empties(2000)
    own = intake(MemoryJournal(lambda: 1), large_body_size=1, max_elements=1000)
    for data, reason in ((many, Reason.TOO_LARGE), (b"\xff{", Reason.MALFORMED)):
        body = Body(signal=Signal.LOGS, data=data, transport="http", json=json)
        refusals: list[str] = []
        for take in (own.take_blocking, lambda body: taken(own, [body])):
            with pytest.raises(RefusedError) as refused:
                take(body)
            assert refused.value.reason is reason
            refusals.append(str(refused.value))
        assert refusals[0] == refusals[1]
    own.close()


def test_large_bodies_after_the_end_are_refused() -> None:
    """Neither the loop nor a thread waits for a thread that is gone."""
    own = intake(MemoryJournal(lambda: 1), large_body_size=1)
    own.close()
    for take in (own.take_blocking, lambda body: taken(own, [body])):
        with pytest.raises(RefusedError) as refused:
            take(BODIES[0])
        assert refused.value.reason is Reason.STOPPING


def test_nothing_is_taken_in_while_the_fold_is_behind() -> None:
    """The refusal is one to retry and gives the seconds; bodies are taken in once the fold keeps up."""
    lag_s = [60.0]
    own = intake(MemoryJournal(lambda: 1), max_fold_lag_s=3)
    own.heed(lambda: lag_s[0])
    with pytest.raises(RefusedError, match=r"60\.0 s") as refused:
        own.admit("http")
    assert refused.value.reason is Reason.BUSY
    assert own.overload is not None
    assert own.problem is None
    lag_s[0] = 1.0
    assert len(taken(own, BODIES)) == len(BODIES)
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

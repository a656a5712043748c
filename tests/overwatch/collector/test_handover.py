"""What the doors decoded and the fold takes."""

from overwatch.collector.handover import Handover
from overwatch.collector.intake import Body, Intake
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.lengths import LEARN_AT
from tests.overwatch.collector.running import run_started, told
from tests.overwatch.otlp.test_template import T, fleet

LOGS = Signal.LOGS


def test_what_was_put_is_taken_once() -> None:
    """The very records come back; after that the body is decoded again, with the same result."""
    body = told("run-1", [run_started()])
    kept = decode(LOGS, body)
    handover = Handover()
    handover.put(body, kept)

    assert handover.take(LOGS, body) is kept
    again = handover.take(LOGS, body)
    assert again == kept
    assert again is not kept


def test_an_equal_body_that_is_another_object_is_decoded() -> None:
    """Only the object that was decoded has its records here."""
    body = told("run-1", [run_started()])
    handover = Handover()
    handover.put(body, Decoded())

    assert handover.take(LOGS, bytes(bytearray(body))).records
    assert handover.take(LOGS, body) == Decoded()


def test_the_oldest_goes_where_there_is_no_room() -> None:
    """What is kept is bounded by bytes of bodies."""
    bodies = [told(f"run-{number}", [run_started()]) for number in range(3)]
    handover = Handover(most_bytes=2 * len(bodies[0]))
    marks = [Decoded(unattributed=number) for number in range(3)]
    for body, mark in zip(bodies, marks, strict=True):
        handover.put(body, mark)

    assert handover.take(LOGS, bodies[0]).records
    assert [handover.take(LOGS, body) for body in bodies[1:]] == marks[1:]


def test_the_intake_hands_its_records_over() -> None:
    """A body that was taken in is not decoded again."""
    journal, handover = MemoryJournal(lambda: 1), Handover()
    cursor = journal.cursor("reader")
    intake = Intake(journal, Tally(), LimitsConfig(limit_mib=1 << 20), handover)
    intake.open()
    intake.accept(Body(signal=LOGS, data=told("run-1", [run_started()]), transport="http"))
    intake.close()

    (batch,) = cursor.wait(0)
    first = handover.take(batch.signal, batch.body)
    assert first.records
    assert handover.take(batch.signal, batch.body) is not first


def test_a_shape_that_comes_again_is_recognised() -> None:
    """The doors read by the templates that were learned where the fold asked."""
    handover = Handover()
    bodies = [fleet(100, T + export, 1.0 + export).SerializeToString() for export in range(LEARN_AT + 1)]
    for body in bodies[:LEARN_AT]:
        assert handover.recognise(Signal.METRICS, body) is None
        assert handover.take(Signal.METRICS, body) == decode(Signal.METRICS, body)
    assert handover.recognise(Signal.METRICS, bodies[-1]) == decode(Signal.METRICS, bodies[-1])

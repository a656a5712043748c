"""What the listeners decoded, and the fold takes."""

import asyncio

import msgspec

from overwatch.collector.intake import SMALL_BYTES, Body, Decoding, Intake, made_of
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.tally import Tally
from overwatch.journal import Batch, MemoryJournal, Signal
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.shapes import LEARN_AT
from tests.overwatch.collector.running import reported, run_started
from tests.overwatch.otlp.test_shapes import T, fleet

LOGS = Signal.LOGS


def _batch(signal: Signal, body: bytes) -> Batch:
    return Batch(sequence=1, stamp=1, signal=signal, body=body)


NUMBERS = fleet(3, T, 1.0).SerializeToString()
"""A request of metrics."""


def test_what_was_made_of_a_body_is_taken() -> None:
    """The very records come; without them the body is decoded, with the same result."""
    body = NUMBERS
    kept = decode(Signal.METRICS, body)
    made = made_of(body, kept, known=False)
    batch = _batch(Signal.METRICS, body)

    assert Decoding().take(msgspec.structs.replace(batch, made=made)) is kept
    again = Decoding().take(batch)
    assert again == kept
    assert again is not kept


def test_what_a_large_body_of_an_unknown_shape_holds_is_not_kept() -> None:
    """Its records take many times its size; of a known shape columns are kept instead of the body."""
    large = bytes(SMALL_BYTES + 1)

    assert made_of(large, Decoded(), known=False) is None
    unknown, known = (made_of(b"body", Decoded(), known=known) for known in (False, True))
    assert unknown is not None
    assert known is not None
    assert (unknown.instead, known.instead) == (False, True)


def test_the_intake_sends_its_records_along() -> None:
    """A body that was taken in is not decoded again."""
    journal, decoding = MemoryJournal(lambda: 1), Decoding()
    cursor = journal.cursor("reader", made=True)
    intake = Intake(journal, Tally(), LimitsConfig(limit_mib=1 << 20), decoding)
    intake.open()
    asyncio.run(intake.take(Body(signal=Signal.METRICS, data=NUMBERS, transport="http")))
    intake.close()

    (batch,) = cursor.wait(0)
    assert batch.made is not None
    assert decoding.take(batch) is batch.made.what
    assert decoding.take(batch).records


def test_without_a_fold_nothing_is_sent_along() -> None:
    """Nobody would take it."""
    journal = MemoryJournal(lambda: 1)
    cursor = journal.cursor("reader")
    intake = Intake(journal, Tally(), LimitsConfig(limit_mib=1 << 20))
    intake.open()
    asyncio.run(intake.take(Body(signal=LOGS, data=reported("run-1", [run_started()]), transport="http")))
    intake.close()

    (batch,) = cursor.wait(0)
    assert batch.made is None


def test_a_shape_that_comes_again_is_recognised() -> None:
    """The doors read by the shapes that were learned where the fold asked."""
    decoding = Decoding()
    bodies = [fleet(100, T + export, 1.0 + export).SerializeToString() for export in range(LEARN_AT + 1)]
    for body in bodies[:LEARN_AT]:
        assert decoding.recognise(Signal.METRICS, body) is None
        assert decoding.take(_batch(Signal.METRICS, body)) == decode(Signal.METRICS, body)
    assert decoding.recognise(Signal.METRICS, bodies[-1]) == decode(Signal.METRICS, bodies[-1])

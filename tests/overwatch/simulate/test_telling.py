"""Simulated runs on the wire: numbered without gaps, and the same events after decoding."""

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.simulate import Script, Settings, Teller
from tests.overwatch.simulate.runs import START, told


def test_requests_decode_to_the_events_in_order() -> None:
    """Nothing is lost or changed on the way; numbers run from 1; the producer is one of ours."""
    settings = Settings(gpus=2, envs=4, slots=3, seconds=5)
    requests = list(Teller("r", "e").tell(Script(settings, START).moments()))
    decoded = [decode(Signal.LOGS, request.body) for request in requests]
    records = [record for each in decoded for record in each.records]

    assert [record.event for record in records] == told(settings)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert {(r.origin.run_id, r.origin.ours, r.origin.rank) for r in records} == {("r", True, 0)}
    assert [request.records for request in requests] == [len(each.records) for each in decoded]
    assert [request.at for request in requests] == [each.records[-1].event.at for each in decoded]


def test_a_request_covers_a_tenth_of_a_second() -> None:
    """However high the rate, a collector gets ten requests a second and one for the end."""
    settings = Settings(gpus=1, envs=2, slots=1, seconds=2, rate_hz=200.0)

    assert len(list(Teller("r", "e").tell(Script(settings, START).moments()))) == 21


def test_the_largest_requests_fit_a_collector() -> None:
    """No body comes near the 4 MiB that a collector takes, and all slots are told."""
    settings = Settings(gpus=32, envs=2048, slots=16, seconds=1, rate_hz=1.0)
    requests = list(Teller("r", "e").tell(Script(settings, START).moments()))

    assert max(len(request.body) for request in requests) < 3 << 20
    assert sum(len(request.body) for request in requests) > 65_536 * 16 * 10

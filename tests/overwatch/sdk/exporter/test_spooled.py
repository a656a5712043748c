"""The sender and the spool: what waits survives an outage, an end of the process, and a second outage."""

from pathlib import Path

from overwatch.journal import Signal
from overwatch.sdk.exporter.spool import Spool
from tests.overwatch.delivery.evil import OK, evil, reply, serving
from tests.overwatch.delivery.waiting import DEADLINE_S, sending
from tests.overwatch.sdk.sink import partial_success
from tests.ports import free_port


def put(spool: Spool, first: int, count: int) -> None:
    """Requests of two records each; every third is of facts."""
    for number in range(first, first + count):
        spool.put(
            Signal.LOGS, b"%d" % number, is_fact=number % 3 == 0, records=2, last_seq=2 * number, rings={}
        )


def adds_up(spool: Spool) -> bool:
    """Accepted = delivered + waiting + dropped."""
    return spool.books.accepted == spool.books.delivered + spool.books.waiting + sum(
        spool.books.dropped.values()
    )


def test_what_waits_is_delivered_by_the_next_process_in_order(tmp_path: Path) -> None:
    """A collector that is away all the time; a second life of the exporter finds it and delivers."""
    port = free_port()
    spool = Spool(tmp_path / "spool")
    with sending(spool, f"http://127.0.0.1:{port}") as sender:
        put(spool, 1, 20)
        assert not sender.drain(0.3)
    assert adds_up(spool)
    spool.close()

    again = Spool(tmp_path / "spool")
    with evil(serving(OK), port=port) as server, sending(again, server.endpoint) as sender:
        put(again, 21, 20)
        assert sender.drain(DEADLINE_S)
        assert [int(requested.body) for requested in server.requested] == list(range(1, 41))
    assert adds_up(again)
    assert (again.books.accepted, again.books.delivered, again.books.waiting) == (80, 80, 0)
    again.close(discard=True)


def test_the_books_hold_what_the_collector_answered(tmp_path: Path) -> None:
    """Refused by code, rejected by number, the rest delivered."""
    spool = Spool(tmp_path / "spool")
    answers = (reply("413 Too Large"), reply("200 OK", body=partial_success(1)), reply("503 Busy"), OK)
    with evil(serving(*answers)) as server, sending(spool, server.endpoint) as sender:
        put(spool, 1, 5)
        assert sender.drain(DEADLINE_S)
    assert adds_up(spool)
    assert spool.books.delivered == 7
    assert spool.books.dropped == {"refused_413": 2, "rejected": 1}
    spool.close()


def test_a_spool_that_is_closed_does_not_trouble_the_sender(tmp_path: Path) -> None:
    """Nothing is taken any more; the sender waits for its end."""
    spool = Spool(tmp_path / "spool")
    with evil(serving(OK)) as server, sending(spool, server.endpoint) as sender:
        put(spool, 1, 3)
        assert sender.drain(DEADLINE_S)
        spool.close()
        assert sender.drain(0.1)
        assert sender.faults == 0

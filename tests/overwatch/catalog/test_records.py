"""Every telemetry record of the original lives somewhere, or is struck out with its reason."""

from overwatch.catalog import BY_NAME, KL, ROWS
from overwatch.catalog.records import InEvent, InField, InRow, StruckOut, ids, places

NUM_RECORDS = 178


def test_all_records_are_counted() -> None:
    """There are 178 ids, each once, and each has a place."""
    assert len(ids()) == len(set(ids())) == NUM_RECORDS
    assert set(ids()) <= set(places(ROWS))


def test_a_record_is_a_row_an_event_a_field_or_named_as_later() -> None:
    """The kinds of places add up, and a row that is meant is there."""
    found = {record: place for record, place in places(ROWS).items() if record in set(ids())}
    kinds = [InRow, InEvent, InField, StruckOut]

    assert sum(sum(isinstance(place, kind) for place in found.values()) for kind in kinds) == NUM_RECORDS
    assert all(place.name in BY_NAME for place in found.values() if isinstance(place, InRow))
    assert all(place.why for place in found.values() if isinstance(place, StruckOut))


def test_the_record_of_the_seed_is_the_row_of_kl() -> None:
    """TELE-110 is KL, and something emits it today."""
    assert places(ROWS)["TELE-110"] == InRow(KL.name)

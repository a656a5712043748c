"""Every telemetry record of the original lives somewhere, or says what it comes with."""

from overwatch.catalog import BY_NAME, KL, ROWS
from overwatch.catalog.records import InEvent, InField, InRow, Later, StruckOut, ids, places

NUM_RECORDS = 178


def test_all_records_are_counted() -> None:
    """There are 178 ids, each once, and each has a place."""
    assert len(ids()) == len(set(ids())) == NUM_RECORDS
    assert set(ids()) <= set(places(ROWS))


def test_a_record_is_a_row_an_event_a_field_or_named_as_later() -> None:
    """The kinds of places add up, and a row that is meant is there."""
    found = {record: place for record, place in places(ROWS).items() if record in set(ids())}
    kinds = [InRow, InEvent, InField, Later, StruckOut]

    assert sum(sum(isinstance(place, kind) for place in found.values()) for kind in kinds) == NUM_RECORDS
    assert all(place.name in BY_NAME for place in found.values() if isinstance(place, InRow))
    assert all(place.comes_with for place in found.values() if isinstance(place, Later))
    assert all(place.why for place in found.values() if isinstance(place, StruckOut))


def test_the_record_of_the_seed_is_the_row_of_kl() -> None:
    """TELE-110 is KL, and something tells it today."""
    assert places(ROWS)["TELE-110"] == InRow(KL.name)


def test_what_is_to_come_is_not_there() -> None:
    """Nothing waits for a world or a command that exists; a part of one that does not is named as such."""
    waits = {row.comes_with for row in ROWS} | {
        place.comes_with for place in places(ROWS).values() if isinstance(place, Later)
    }
    assert not {"morphogenesis world", "comparison of runs"} & waits

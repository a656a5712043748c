"""Names of rotated snapshots, and which of them is packed, thinned or removed next."""

from overwatch.recordings.rotated import Rotated, counting, due, over, rotated

HOUR = 3600


def test_names_are_read_as_they_were_written() -> None:
    """Each kind of file, and nothing of another log."""
    every = [
        Rotated(second=7, is_packed=packed, is_thinned=thinned)
        for packed, thinned in ((False, False), (True, False), (True, True))
    ]
    names = [one.name("snapshots.jsonl") for one in every]

    assert (
        rotated("snapshots.jsonl", ["snapshots.jsonl", "snapshots-x.jsonl", "other-7.jsonl", *names]) == every
    )


def test_of_a_second_the_file_that_came_last_counts() -> None:
    """What was packed replaces what it was made of, and thinned what was packed."""
    found = rotated("s.jsonl", ["s-9.jsonl", "s-7.jsonl", "s-7.jsonl.zst", "s-7-minute.jsonl.zst"])

    assert [one.name("s.jsonl") for one in counting(found)] == ["s-7-minute.jsonl.zst", "s-9.jsonl"]


def test_the_oldest_that_is_due_is_next() -> None:
    """What is not packed, and what is older than an hour and not thinned."""
    thinned = Rotated(second=0, is_packed=True, is_thinned=True)
    old, young = Rotated(second=HOUR, is_packed=True), Rotated(second=3 * HOUR, is_packed=True)
    fresh = Rotated(second=3 * HOUR + 1)

    assert due(3 * HOUR, [thinned, old, young, fresh], 1) == old
    assert due(3 * HOUR, [thinned, young, fresh], 1) == fresh
    assert due(3 * HOUR, [thinned, young], 1) is None


def test_the_oldest_go_until_all_fit() -> None:
    """No more than needed."""
    sizes = {Rotated(second=number): 10 for number in (3, 1, 2)}

    assert over(sizes, 5, 35) == []
    assert over(sizes, 5, 30) == [Rotated(second=1)]
    assert over(sizes, 5, 0) == sorted(sizes)

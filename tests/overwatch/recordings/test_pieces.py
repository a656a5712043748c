"""The pieces of a recording: which files count, at whatever moment the folder is looked at."""

from overwatch.recordings.pieces import Piece, Rotated, counting, due, inventory, over, piece_of, rotated


def test_a_name_is_read_back() -> None:
    """Kind, numbers, generation and packing are all in it."""
    for piece in (Piece(first=7, last=7), Piece(first=1, last=1_000_000, generation=12, is_packed=True)):
        assert piece_of(piece.name("logs")) == ("logs", piece)
    for name in ("logs.jsonl", "logs-1-1-0.jsonl", "logs-000002-000001-0.jsonl", "x-000001-000001-0.zst"):
        assert piece_of(name) is None


def test_a_higher_generation_replaces_what_it_covers() -> None:
    """Each number counts once, and what is left over is named."""
    old = [Piece(first=n, last=n) for n in (1, 2, 3)]
    new = Piece(first=1, last=2, generation=1, is_packed=True)
    names = [piece.name(kind) for piece in (*old, new) for kind in ("index", "logs")]
    found = inventory([*names, "index.jsonl", "notes.txt"])

    assert found.pieces == (new, old[2])
    assert set(found.leftovers) == {piece.name(kind) for piece in old[:2] for kind in ("index", "logs")}
    assert found.number == 4


def test_a_compaction_without_its_index_is_left_over() -> None:
    """The pieces that it was made of still count."""
    old, new = Piece(first=1, last=1), Piece(first=1, last=1, generation=1, is_packed=True)
    found = inventory([old.name("index"), old.name("logs"), new.name("logs")])

    assert found.pieces == (old,)
    assert found.leftovers == (new.name("logs"),)


def test_a_rotation_that_did_not_reach_the_index_is_seen() -> None:
    """Its data files have the number that is written to."""
    old, new = Piece(first=1, last=1), Piece(first=2, last=2)
    found = inventory([old.name("index"), new.name("logs")])

    assert (found.number, found.rotating, found.leftovers) == (2, (new.name("logs"),), ())


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

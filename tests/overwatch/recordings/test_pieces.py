"""The pieces of a recording: which files count, at whatever moment the folder is looked at."""

from overwatch.recordings.pieces import Piece, inventory, piece_of


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

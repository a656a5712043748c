"""Data of hosts: digits."""

from overwatch_rl.worlds.morphogenesis.data import digits


def test_digits_are_split_by_position() -> None:
    """1,200 and 597 of them, in 0..1."""
    data = digits()

    assert (len(data.train_y), len(data.valid_y), data.num_pixels) == (1200, 597, 64)
    assert float(data.train_x.min()) == 0.0
    assert float(data.train_x.max()) == 1.0

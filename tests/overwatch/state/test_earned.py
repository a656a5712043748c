"""Sums of episodes: the same bits however many envs are summed up together, and whenever."""

import msgspec
import numpy as np

from overwatch.state.arrays import arrays_of, decode_hook, encode_hook, resize
from overwatch.state.env_tables import RETURNS, SHOWN_RETURNS, EpisodeSums
from overwatch.state.envs import Envs


def _summed(told: np.ndarray, together: int) -> bytes:
    rows = told.shape[0]
    sums = EpisodeSums()
    resize(sums, rows)
    done = np.full(rows, RETURNS, dtype=np.int64)
    for start in range(0, rows, together):
        place = np.arange(start, min(start + together, rows))
        sums.sum_all(place, told[place], done[place])
        sums.sum_newest(place, told[place, :SHOWN_RETURNS], done[place], done[place])
    return b"".join(array.tobytes() for array, _ in arrays_of(sums))


def _sums(envs: Envs) -> list[bytes]:
    envs.newest_sums()
    return [array[: envs.n].tobytes() for array, _ in arrays_of(envs.all_sums())]


def _resumed(envs: Envs) -> Envs:
    data = msgspec.msgpack.encode(envs, enc_hook=encode_hook)
    return msgspec.msgpack.decode(data, type=Envs, dec_hook=decode_hook)


def _happen(envs: Envs, dice: np.random.Generator, at: int) -> None:
    """One of what changes episodes, or who has them."""
    ids = np.flatnonzero(dice.random(12) < 0.4)
    match dice.integers(9):
        case 0:
            envs.remove(ids, at)
        case 1:
            envs.begin_task(envs.rows(ids))
        case 2:
            envs.end(ids, ("return",), at)
        case 3:
            envs.newest_sums()
        case 4:
            envs.all_sums()
        case 5:
            envs.rows(ids)
        case _:
            told = np.where(dice.random(ids.size) < 0.05, np.nan, dice.standard_normal(ids.size))
            envs.finish_episodes(envs.rows(ids), told, at)


def test_envs_are_summed_up_to_the_same_bits_alone_and_all_at_once() -> None:
    """A live fold sums up the few whose episode just ended, a fold after a checkpoint all of them."""
    dice = np.random.default_rng(7)
    told = dice.standard_normal((700, RETURNS)) * 10.0 ** dice.uniform(-9, 9, (700, RETURNS))

    assert _summed(told, 1) == _summed(told, 60) == _summed(told, 700)


def test_sums_kept_while_envs_come_and_go_equal_those_of_a_checkpoint() -> None:
    """Which rows are summed up anew is known, whoever asked for what before."""
    dice = np.random.default_rng(11)
    envs = Envs()
    for at in range(1, 1500):
        _happen(envs, dice, at)
        if dice.random() < 0.2:
            assert _sums(_resumed(envs)) == _sums(envs)

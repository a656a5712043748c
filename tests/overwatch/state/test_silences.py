"""The clock that runs while a fleet reports, and the gaps that it measures."""

import numpy as np

from overwatch.state.arrays import resize
from overwatch.state.env_tables import LONGEST_NS, Silences

SECOND = 1_000_000_000
ALL = slice(0, 2)


def _silences() -> Silences:
    silences = Silences()
    resize(silences, 2)
    silences.begin(ALL, np.ones(2, dtype=np.bool_), SECOND)
    return silences


def test_a_hole_in_which_none_reports_counts_for_one_usual_interval() -> None:
    """A pause of a minute between reports of every second."""
    silences = _silences()
    for second in (2, 3, 4, 64, 65):
        silences.reported(ALL, second * SECOND)

    assert silences.clock_ns == 5 * SECOND
    assert silences.longest_s.tolist() == [1.0, 1.0]
    assert silences.gaps.tolist() == [5, 5]


def test_each_env_has_gaps_of_its_own() -> None:
    """One reports each second, the other each third; a fact ends a silence and is no gap."""
    silences = _silences()
    for second in range(2, 32):
        silences.reported(slice(0, 1), second * SECOND)
        if second % 3 == 1:
            silences.reported(slice(1, 2), second * SECOND)
    silences.advance(33 * SECOND)
    silences.reported_one(1, 33 * SECOND)

    assert silences.mean_s.round(6).tolist() == [1.0, 3.0]
    assert silences.gaps.tolist() == [30, 10]
    assert silences.last_ns[1] == silences.clock_ns


def test_a_long_gap_fades() -> None:
    """An accident is half forgotten after forty minutes, and no sooner."""
    silences = _silences()
    for second in range(2, 42):
        silences.reported(slice(0, 1), second * SECOND)
    silences.reported(ALL, 41 * SECOND)
    long_s = float(silences.longest_s[1])
    for second in range(42, 42 + 2495):
        silences.reported(ALL, second * SECOND)

    assert long_s == 40.0
    assert 0.45 * long_s < silences.longest_s[1] < 0.55 * long_s


def test_clocks_that_jump_are_no_silence() -> None:
    """A record from the far future counts for a day at most, one from the past for nothing."""
    silences = _silences()
    silences.reported(ALL, 1 << 62)
    silences.reported(ALL, 5)

    assert silences.clock_ns == LONGEST_NS

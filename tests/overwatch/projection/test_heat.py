"""Envs and lanes over time as they are answered: which rows and columns, in which order, with which signs."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog.bounds import BoundState
from overwatch.events import Column, EnvsRemoved
from overwatch.projection.heat import ENV_CELLS, LANE_CELLS, heat_map
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.state.heat import BY_MARK, CRASHED, MARKS, VERDICTS, Heat
from tests import fakes
from tests.overwatch.serve.framed import Frames, gpu

WORSE = {sign: place for place, sign in enumerate(ENV_CELLS)}


def seconds(frames: Frames, count: int, crashes: dict[int, int] | None = None, n: int = 6) -> None:
    """So many seconds of a run, of which some envs crash at some of them."""
    for second in range(count):
        ids = [env_id for env_id in range(n) if (crashes or {}).get(env_id, count) >= second]
        events = [
            fakes.envs(frames.now, ids, second, lane=[f"gpu{env_id % 2}" for env_id in ids],  # type: ignore[misc]  # lanes are words
                       reward=[1.0] * len(ids)),
            *(fakes.crashed(frames.now, env_id) for env_id, at in (crashes or {}).items() if at == second),
        ]  # fmt: skip
        frames.report("run-1", events)
        frames.skip(9)


def asked(frames: Frames, **query: object) -> HeatMap:
    """The answer of the newest run."""
    found = frames.heat(None, HeatQuery(**query))  # type: ignore[arg-type]  # a test's own fields
    assert found is not None
    return found


def cells(found: HeatMap) -> dict[int | str, str]:
    """Rows by id."""
    return {row.id: row.cells for row in found.rows}


def test_a_row_has_its_lane_and_a_sign_each_second() -> None:
    """An env that crashed is `x` from then on, the others `0`."""
    frames = Frames()
    seconds(frames, 8, {3: 5})
    found = asked(frames)

    assert [(row.id, row.group) for row in found.rows] == [(n, f"gpu{n % 2}") for n in range(6)]
    assert cells(found)[3].lstrip("0") == "x" * cells(found)[3].count("x") != ""
    assert set(cells(found)[0]) == {"0"}
    assert found.since is not None
    assert found.until is not None
    assert (found.step_s, found.columns, found.total) == (1.0, len(cells(found)[0]), 6)
    assert found.until - found.since == found.columns * found.step_s
    assert set("".join(cells(found).values())) <= set(found.legend)


def test_rows_come_by_id_or_worst_first_in_windows() -> None:
    """A window is a slice of all; the worst are those that crashed first."""
    frames = Frames()
    seconds(frames, 8, {4: 5, 2: 3})

    assert [row.id for row in asked(frames, sort="worst").rows][:2] == [2, 4]
    for sort in ("id", "worst"):
        whole = asked(frames, sort=sort)
        part = asked(frames, sort=sort, offset=2, rows=3)
        assert part.rows == whole.rows[2:5]
        assert (part.total, part.offset) == (6, 2)
    assert asked(frames, offset=99).rows == ()


def test_a_filter_is_of_how_envs_are_now() -> None:
    """In the board's words."""
    frames = Frames()
    seconds(frames, 8, {4: 5, 2: 3})

    found = {
        text: [row.id for row in asked(frames, filter=text).rows]
        for text in ("status=crashed", "gpu=1", "env=1-2 !gpu=1", "nobody")
    }
    assert found == {"status=crashed": [2, 4], "gpu=1": [1, 3, 5], "env=1-2 !gpu=1": [2], "nobody": []}


@cache
def half_a_minute() -> Frames:
    """A run with two crashes."""
    frames = Frames()
    seconds(frames, 30, {1: 15, 2: 10})
    return frames


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(-5, 35), st.integers(-5, 35))
def test_joined_columns_are_the_worst_of_those_in_them(columns: int, begin: int, more: int) -> None:
    """Of any part of the run, in any number of columns."""
    frames = half_a_minute()
    whole = asked(frames)
    assert whole.since is not None
    since, until = whole.since + begin, whole.since + begin + max(0, more)
    part = asked(frames, since=since, until=until, columns=columns)

    assert part.columns <= columns
    if not part.columns:
        assert until < whole.since or since >= (whole.until or 0)
        return
    assert part.since is not None
    assert part.step_s is not None
    assert part.since <= max(since, whole.since) < part.since + part.step_s
    first, each = int(part.since - whole.since), int(part.step_s)
    for one, joined in zip(whole.rows, part.rows, strict=True):
        pieces = [one.cells[at : at + each] for at in range(first, first + len(joined.cells) * each, each)]
        kept = [piece for piece in pieces if piece]
        assert len(kept) == len(joined.cells)
        for piece, sign in zip(kept[:-1], joined.cells[:-1], strict=True):
            assert sign == max(piece, key=WORSE.__getitem__)


def test_an_env_that_was_removed_is_not_there_any_more() -> None:
    """Its row stays, blank after it left, and has no lane; what it was before stays."""
    frames = Frames()
    seconds(frames, 3)
    frames.report("run-1", [EnvsRemoved(at=frames.now, env_id=Column.of([5]))])
    frames.skip(19)
    row = asked(frames).rows[5]

    assert (row.id, row.group) == (5, None)
    assert row.cells.startswith("000")
    assert row.cells.endswith(" ")


def test_while_nothing_is_received_nothing_is_known() -> None:
    """What comes after a silence of minutes has question marks before it."""
    frames = Frames()
    seconds(frames, 20)
    frames.skip(600)
    frames.report("run-1", [fakes.envs(frames.now, range(6), 9, reward=[1.0] * 6)])
    line = asked(frames).rows[0].cells

    assert len(line) > 60
    assert line.startswith("0000")
    assert line.endswith("0")
    assert line.count("?") > 45


def test_lanes_have_what_held_them_back() -> None:
    """A sign with its verdict and mark in the legend."""
    frames = Frames()
    for second in range(12):
        reading = gpu(frames.now, "gpu0", utilization=0.95, power_w=100.0, temperature_c=70.0)
        frames.report("run-1", [fakes.policy(frames.now, second, entropy=0.5), reading])
        frames.skip(9)
    found = asked(frames, of="gpu")

    assert [row.id for row in found.rows] == ["gpu0"]
    assert len(found.rows[0].cells) == found.columns >= 10
    assert {found.legend[sign].text for sign in found.rows[0].cells} <= {one.value for one in BoundState}


def test_every_code_has_its_own_sign() -> None:
    """Of envs and of lanes; all signs are of one byte."""
    assert len(ENV_CELLS) == CRASHED + 1
    assert len(LANE_CELLS) == 1 + len(MARKS) * len(VERDICTS)
    assert max(VERDICTS.values()) + BY_MARK * (len(MARKS) - 1) < 256
    assert all(len(sign) == 1 and sign.isascii() for sign in (*ENV_CELLS, *LANE_CELLS))


def test_a_run_that_was_never_judged_has_nothing() -> None:
    """No columns, and no time."""
    state = fakes.folded([fakes.policy(fakes.START_NS, 1, entropy=0.5)])
    found = heat_map(state, None, Heat(), HeatQuery(filter="status=ok"))
    assert (found.columns, found.rows, found.since) == (0, (), None)
    assert found.total == 0

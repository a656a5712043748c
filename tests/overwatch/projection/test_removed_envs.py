"""What a view shows of envs that were removed: nothing, but that they were."""

from overwatch.diagnose import Assessment, assess
from overwatch.events import Column, EnvsRemoved, Event
from overwatch.projection import project
from overwatch.snapshot import Detail, Snapshot, View
from tests import fakes
from tests.fakes import SECOND, START_NS


def _reported() -> list[Event]:
    return [
        fakes.started(START_NS, n_envs=4, slots=("r0c0",)),
        fakes.envs(
            START_NS, range(4), 1, metric=[0.1, 0.2, 0.3, 0.9], lane=["gpu0", "gpu0", "gpu0", "gpu1"]  # type: ignore[list-item]  # lanes are words
        ),
        fakes.slots(START_NS, range(4), ["r0c0"] * 4, ["training", "training", "training", "pruned"]),
        fakes.acted(START_NS, range(4), ["wait", "wait", "wait", "prune"]),
        fakes.ended(START_NS, range(4), [1.0, 2.0, 3.0, 90.0]),
        fakes.crashed(START_NS, 3),
        EnvsRemoved(at=START_NS + SECOND, env_id=Column.of([3])),
    ]  # fmt: skip


def _shown(view: View | None = None, *more: Event) -> Snapshot:
    state = fakes.folded([*_reported(), *more])
    return project(state, assess(state, Assessment(), state.last_stamp), view or View())


def test_a_removed_env_is_in_no_row_group_rollup_or_count() -> None:
    """Board, lanes, census, actions, both ends of the fleet and the header speak of the three others."""
    seen = _shown()

    assert sorted(env.env_id for env in seen.envs) == [0, 1, 2]
    assert [(group.gpu_id, group.n_envs, group.median_return) for group in seen.board.groups] == [
        ("gpu0", 3, 2.0)
    ]
    assert seen.board.counts == {"ok": 3}
    assert seen.run.n_envs == 3
    assert seen.aggregates.seed_census["pruned"] == 0
    assert seen.aggregates.seed_census["training"] == 3
    assert seen.aggregates.actions == {"wait": 1.0}
    assert [best.value for best in seen.aggregates.best] == [3.0, 0.3]
    assert [lane.gpu_id for lane in seen.aggregates.lanes] == ["gpu0"]
    assert seen.findings == ()


def test_a_filter_finds_no_removed_env() -> None:
    """By number, by status, by lane or by word."""
    for text in ("env=3", "status=crashed", "gpu=1", "prune", "stage=pruned"):
        assert _shown(View(filter=text)).board.matched == 0


def test_the_drawer_of_a_removed_env_shows_when_it_was_removed() -> None:
    """Its id and the time, and nothing of what it was; an env never seen has its id alone."""
    assert _shown(View(env_id=3)).detail == Detail(env_id=3, removed_at=(START_NS + SECOND) / 1e9)
    assert _shown(View(env_id=99)).detail == Detail(env_id=99)


def test_the_drawer_of_an_env_that_came_back_shows_this_life_only() -> None:
    """Neither the crash nor the episodes of the earlier one."""
    again = fakes.envs(START_NS + 2 * SECOND, [3], 2, metric=[0.5])
    detail = _shown(View(env_id=3), again).detail

    assert detail is not None
    assert detail.env is not None
    assert (detail.removed_at, detail.events, detail.actions, detail.history) == (
        None,
        (),
        (),
        {"return": ()},
    )
    assert (detail.env.status, detail.env.metric, detail.env.slots) == ("ok", 0.5, {})


def test_the_removal_is_in_the_feed() -> None:
    """One line, with the env it is about."""
    last = _shown().feed[-1]

    assert (last.kind, last.message, last.env_id) == ("envs_removed", "env removed", 3)


def test_a_run_without_any_env_left_is_shown() -> None:
    """Everything is gone and nothing raises."""
    seen = _shown(None, EnvsRemoved(at=START_NS + 2 * SECOND, env_id=Column.of(range(4))))

    assert (seen.run.n_envs, seen.envs, seen.board.groups, seen.board.counts) == (0, (), (), {})

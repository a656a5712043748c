"""The dashboards' published names."""

from overwatch.generate.boards.uids import Board


def test_uids_stay_what_they_were() -> None:
    """Bookmarks and alerts hold these words, so a change here breaks them."""
    assert {board.name: board.uid for board in Board} == {
        "FLEET": "overwatch-fleet",
        "RUN": "overwatch-run",
        "LANES": "overwatch-lanes",
        "ENVS": "overwatch-envs",
        "SEEDS": "overwatch-seeds",
        "RETURNS": "overwatch-returns",
        "ROLLOUTS": "overwatch-rollouts",
        "LEARNER": "overwatch-learner",
        "REPLAY": "overwatch-replay",
        "FEDERATION": "overwatch-federation",
        "COLLECTOR": "overwatch-collector",
    }


def test_an_alert_can_point_at_a_run() -> None:
    """The run's variable is in the address."""
    assert Board.LANES.path("{{ $labels.rl_run_id }}") == (
        "/d/overwatch-lanes?var-rl_run_id={{ $labels.rl_run_id }}"
    )
    assert Board.FLEET.path() == "/d/overwatch-fleet"

"""All dashboards, and the text of each one's file."""

from typing import Final

from overwatch.generate.boards.collector import COLLECTOR
from overwatch.generate.boards.envs import ENVS
from overwatch.generate.boards.federation import FEDERATION
from overwatch.generate.boards.fleet import FLEET
from overwatch.generate.boards.lanes import LANES
from overwatch.generate.boards.learner import LEARNER
from overwatch.generate.boards.replay import REPLAY
from overwatch.generate.boards.returns import RETURNS
from overwatch.generate.boards.rollouts import ROLLOUTS
from overwatch.generate.boards.run import RUN
from overwatch.generate.boards.seeds import SEEDS
from overwatch.generate.boards.spec import Dashboard
from overwatch.generate.boards.uids import Board

DASHBOARDS: Final[tuple[Dashboard, ...]] = (
    FLEET, RUN, LANES, ENVS, SEEDS, RETURNS, ROLLOUTS, LEARNER, REPLAY, FEDERATION, COLLECTOR,
)  # fmt: skip


def board_text(board: Board) -> str:
    """The file of a dashboard; needs Grafana's builders, which come with the extra `dev`."""
    from overwatch.generate.boards.drawing import draw

    (spec,) = (one for one in DASHBOARDS if one.board is board)
    return draw(spec)

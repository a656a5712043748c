"""What the rules know of the fleet at one tick: its envs, and what is usual among them."""

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.diagnose.returns import Returns, returns_of
from overwatch.diagnose.usual import Usual, usual_of
from overwatch.state.arrays import Floats, Ints
from overwatch.state.run import RunState


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The envs of one run at one tick; arrays have shape (n,)."""

    state: RunState
    n: int
    ids: Ints
    lane: Ints
    """Index into the run's lane names; -1 unknown."""
    step_time: Floats
    """Seconds; NaN where not measured."""
    usual: Usual
    """What was usual at the start of this second."""
    returns: Returns | None
    """`None` while no env has finished enough episodes."""

    @property
    def newest_at(self) -> int:
        """Producer's time of the newest env record; 0 when there is none."""
        return int(np.maximum.reduce(self.state.envs.seen_at[: self.n], initial=0))

    @property
    def quiet_s(self) -> Floats:
        """Seconds for which each env was quiet, up to when an eighth of the living ones had reported.

        One env that reports alone does not make the others silent; an eighth of the fleet does.
        """
        envs = self.state.envs
        last_ns = envs.silences.last_ns[: self.n]
        alive = last_ns[envs.crashed_at[: self.n] == 0]
        if not alive.size:
            return np.zeros(self.n)
        place = alive.size - 1 - alive.size // 8
        quiet_s: Floats = (np.partition(alive, place)[place] - last_ns) / 1e9
        return quiet_s

    @property
    def median_step_time(self) -> float | None:
        """Seconds; `None` where the column is absent or equal for all envs."""
        return self.usual.pace.median

    @property
    def lane_step_time(self) -> dict[str, float]:
        """Median step of each named lane that reports steps, seconds."""
        return self.usual.pace.lanes

    @property
    def lane_pace(self) -> dict[str, float]:
        """Each lane's median step over that of the other lanes of its kind; only where there are others."""
        return self.usual.pace.times

    def on_lane(self, name: str) -> npt.NDArray[np.bool_]:
        """Which envs are on a lane."""
        code = self.state.lane_names.codes.get(name, -2)
        on: npt.NDArray[np.bool_] = self.lane == code
        return on


def fleet_of(state: RunState, usual: Usual | None = None) -> Fleet:
    """The fleet, by what is usual in it; worked out where nobody did."""
    envs = state.envs
    usual = usual_of(state) if usual is None else usual
    return Fleet(
        state=state,
        n=envs.n,
        ids=envs.ids[: envs.n],
        lane=envs.lane[: envs.n],
        step_time=envs.values["step_time"][: envs.n],
        usual=usual,
        returns=None if usual.earnings is None else returns_of(envs, usual.earnings),
    )

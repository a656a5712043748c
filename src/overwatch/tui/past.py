"""How the open environment was a while ago, as this terminal saw it: one moment a second while it is open.

Owns the moments and which of them is shown. Must not know keys or drawing.
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from overwatch.snapshot import Detail, Snapshot

MOMENTS: Final = 600


class Moment(NamedTuple):
    """An environment at one time."""

    time: float
    """Unix seconds."""
    detail: Detail

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with this moment's detail in the place of its own."""
        env_id = self.detail.env_id
        envs = tuple(self.detail.env or env if env.env_id == env_id else env for env in snapshot.envs)
        return msgspec.structs.replace(snapshot, envs=envs, detail=self.detail)


class Past:
    """The moments of one environment, oldest first."""

    def __init__(self) -> None:
        self._env_id: int | None = None
        self._moments: deque[Moment] = deque(maxlen=MOMENTS)
        self._back: int | None = None
        """The shown moment, counted back from the newest; `None` is now."""

    def take(self, snapshot: Snapshot, env_id: int | None) -> None:
        """The first snapshot of each second; another environment, or an earlier time, starts anew."""
        detail = snapshot.detail
        newest = self._moments[-1].time if self._moments else snapshot.time
        if env_id != self._env_id or snapshot.time < newest:
            self._env_id, self._back = env_id, None
            self._moments.clear()
        if env_id is None or detail is None or detail.env_id != env_id:
            return
        if self._moments and int(snapshot.time) == int(newest):
            return
        if self._back is not None:
            self._back = min(self._back + 1, MOMENTS - 1)
        self._moments.append(Moment(snapshot.time, detail))

    def step(self, by: int) -> str | None:
        """So many seconds on, or back; past the newest it is now again. What to say when that is the end."""
        back = (0 if self._back is None else self._back) - by
        if not self._moments or back >= len(self._moments):
            return "nothing earlier was seen here while this was open; r opens the recording"
        self._back = back if back > 0 else None
        return None

    @property
    def shown(self) -> Moment | None:
        """The moment that is shown; `None` is now."""
        return None if self._back is None else self._moments[-1 - self._back]

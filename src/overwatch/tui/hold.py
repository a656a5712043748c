"""The order of the rows stands still for two seconds after a key, so that nobody acts on a row that moved.

Values go on changing; rows that come in the meantime are added at the end. Must not know keys or drawing.
"""

from typing import Final

import msgspec

from overwatch.snapshot import Snapshot

HOLD_S: Final = 2.0


class Hold:
    """The order that was on the screen when a key was pressed."""

    def __init__(self) -> None:
        self._until = 0.0
        self._envs: dict[int, int] = {}
        self._groups: dict[str | None, int] = {}
        self._board: tuple[str, str, str | None] | None = None

    def press(self, shown: Snapshot | None, now: float) -> None:
        """A key was pressed while this was shown."""
        if shown is None:
            return
        if now >= self._until or self._board != _key(shown):
            self._envs = {env.env_id: place for place, env in enumerate(shown.envs)}
            self._groups = {group.gpu_id: place for place, group in enumerate(shown.board.groups)}
            self._board = _key(shown)
        self._until = now + HOLD_S

    def apply(self, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot in the held order, if one is held; another sort or filter ends it."""
        if now >= self._until or self._board != _key(snapshot):
            return snapshot
        last = len(self._envs)
        envs = sorted(snapshot.envs, key=lambda env: self._envs.get(env.env_id, last))
        groups = sorted(snapshot.board.groups, key=lambda group: self._groups.get(group.gpu_id, last))
        board = msgspec.structs.replace(snapshot.board, groups=tuple(groups), held=True)
        return msgspec.structs.replace(snapshot, envs=tuple(envs), board=board)

    def release(self) -> None:
        """Hold nothing: the user asked for another order."""
        self._until = 0.0


def _key(snapshot: Snapshot) -> tuple[str, str, str | None]:
    board = snapshot.board
    return board.sort, board.direction, board.filter

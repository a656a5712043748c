"""Artifacts in a store: written before the version key names them, the newest stay. Must not know the key."""

from overwatch_rl.artifacts.store import Store
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.weights.manifest import FOLDER, WHOLE, artifact_of


class Keeping:
    """The artifacts of one run, for who writes them."""

    def __init__(self, store: Store, keep: int, *, is_read_back: bool = False) -> None:
        """`keep` of the newest stay; `is_read_back` verifies what was written."""
        self._store = store
        self._keep = keep
        self._is_read_back = is_read_back
        self._held: list[Version] | None = None
        """Those that lie in the store; `None` until it was asked."""

    def put(self, version: Version, artifact: bytes) -> None:
        """Write. Raises `OSError`."""
        self._store.put(artifact_of(version), artifact, verify=self._is_read_back)

    def prune(self, newest: Version) -> None:
        """Leave the newest only; what cannot be removed now is removed after the next version."""
        try:
            if self._held is None:
                names = [entry.key.removeprefix(f"{FOLDER}/") for entry in self._store.list(FOLDER)]
                found = [parse(name.removesuffix(f".{WHOLE}")) for name in names if name.endswith(WHOLE)]
                self._held = sorted(one for one in found if one is not None and one < newest)
            self._held.append(newest)
            while len(self._held) > self._keep:
                self._store.delete(artifact_of(self._held[0]))
                self._held.pop(0)
        except OSError:
            return

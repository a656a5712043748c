"""Artifacts in a store: written before the version key names them, the newest stay. Must not know the key."""

from overwatch.objects.store import Store
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.weights.manifest import FOLDER, artifact_of


class Keeping:
    """The artifacts of one run, for who writes them."""

    def __init__(self, store: Store, keep: int, *, is_read_back: bool = False) -> None:
        """`keep` of the newest stay; `is_read_back` verifies what was written."""
        self._store = store
        self._keep = keep
        self._is_read_back = is_read_back
        self._held: set[Version] = set()
        """In the store."""
        self._is_listed = False

    def put(self, version: Version, artifact: bytes) -> None:
        """Write. Raises `OSError`."""
        self._held.add(version)
        self._store.put(artifact_of(version), artifact, verify=self._is_read_back)

    def prune(self, newest: Version) -> None:
        """Leave the newest only; what cannot be removed now is removed after the next version."""
        try:
            if not self._is_listed:
                for entry in self._store.list(FOLDER):
                    found = parse(entry.key.removeprefix(f"{FOLDER}/").partition(".")[0])
                    if found is not None and found < newest:
                        self._held.add(found)
                self._is_listed = True
            for version in sorted(self._held)[: -self._keep]:
                self._store.delete(artifact_of(version))
                self._held.remove(version)
        except OSError:
            return

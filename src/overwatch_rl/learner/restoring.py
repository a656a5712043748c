"""Where a learner goes on from. Must not know how it learns."""

from pathlib import Path
from typing import Any

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.reading import Checkpoint, candidates
from overwatch_rl.learner.config import LearnerConfig


def newest(place: str | Path, config: LearnerConfig, before: int | None = None) -> Checkpoint | None:
    """The newest checkpoint that is whole, of fewer updates than `before`; `None` where there is none.

    Raises `ValueError` where all are damaged, or it was made with another configuration: what differs.
    """
    faults: list[str] = []
    for load in candidates(place):
        try:
            checkpoint = load()
        except (OSError, ValueError) as error:
            faults.append(str(error))
            continue
        if before is None or checkpoint.state.updates < before:
            _check(checkpoint, config)
            return checkpoint
    if faults and before is None:
        raise ValueError(f"{place} has no checkpoint that is whole: {faults[0]}")
    return None


def first_version(checkpoint: Checkpoint | None, known: Version | None, lineage: int) -> Version | None:
    """The first version of a life; `None` of a run that begins.

    `known` is the newest that was published, `lineage` the next one by the place of checkpoints.
    """
    if checkpoint is None and known is None:
        return None
    start = Version(1, 0) if checkpoint is None else checkpoint.state.version
    found = start.resumed(known)
    return Version(max(found.lineage, lineage), found.number)


def _check(checkpoint: Checkpoint, config: LearnerConfig) -> None:
    if checkpoint.state.config_hash == config.hash:
        return
    kept, now = checkpoint.state.config, config.kept()
    names = [name for name in now if name not in ("updates", "system") and kept.get(name) != now[name]]
    found = [one for name in names for one in _differences(name, kept.get(name), now[name])]
    raise ValueError(
        f"{checkpoint.where} was trained otherwise: {'; '.join(found) or 'by another version'}; "
        "use its configuration, or begin a run elsewhere"
    )


def _differences(path: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(before.keys() | after.keys())
        return [
            one for name in names for one in _differences(f"{path}.{name}", before.get(name), after.get(name))
        ]
    return [] if before == after else [f"{path} was {before}, not {after}"]

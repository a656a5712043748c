"""How a grpo run goes on from a checkpoint: what decides the numbers is the checkpoint's, or an error."""

from dataclasses import replace
from pathlib import Path

from overwatch.objects.store import is_remote
from overwatch_rl.checkpoints.reading import Checkpoint, find_checkpoint
from overwatch_rl.grpo.config import GrpoSettings, config_of

_FREE = ("updates", "system")


def going_on(settings: GrpoSettings, resume: Path | str | None) -> tuple[GrpoSettings, Checkpoint | None]:
    """The settings of a new run, or of one that goes on in the folder it was kept in.

    Raises `ValueError` naming a setting that differs from the checkpoint's, or why there is none.
    """
    if resume is None:
        return settings, None
    checkpoint = find_checkpoint(resume)
    kept, given = checkpoint.state.config, config_of(settings)
    for name in given:
        if name not in _FREE and kept.get(name) != given[name]:
            raise ValueError(
                f"{name} is {given[name]}, the checkpoint was trained with {kept.get(name)}; "
                "give the same flags as before, or begin a new run"
            )
    done, planned = checkpoint.state.updates, settings.loop.updates
    if done >= planned:
        raise ValueError(f"{checkpoint.where} has had {done} updates; give --updates with more")
    kept_in = None if is_remote(checkpoint.where) else checkpoint.path.parent.parent
    return replace(settings, out=settings.out or kept_in), checkpoint

"""Stories of recordings, without a command line."""

from pathlib import Path

from overwatch.analyse.story import Story, one_of, open_recorded, stories


def every(path: Path, run_id: str | None = None) -> dict[str, Story]:
    """Those of all runs, or of one that is there."""
    return stories(path, open_recorded(path), run_id)


def read_story(path: Path, run_id: str | None = None) -> Story:
    """That of the run named, else of the newest one."""
    recorded = open_recorded(path)
    return one_of(path, recorded, stories(path, recorded, run_id).values(), run_id)

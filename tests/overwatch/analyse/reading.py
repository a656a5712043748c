"""Stories of recordings, without a command line."""

from pathlib import Path

from overwatch.analyse.run_history import RunHistory, histories, one_of, open_recorded


def every(path: Path, run_id: str | None = None) -> dict[str, RunHistory]:
    """Those of all runs, or of one that is there."""
    return histories(path, open_recorded(path), run_id)


def read_history(path: Path, run_id: str | None = None) -> RunHistory:
    """That of the run named, else of the newest one."""
    recorded = open_recorded(path)
    return one_of(path, recorded, histories(path, recorded, run_id).values(), run_id)

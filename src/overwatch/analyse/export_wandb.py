"""A run as an offline run of Weights & Biases, written by its own package.

Rules: nothing is sent; `wandb sync` does that. Numbers of the policy stand over `update`, those of machines
over `second`; both are columns of each row, and W&B's own step only counts rows. Must not know how a
recording is read.
"""

import re
from pathlib import Path
from typing import Any, Final

from overwatch.analyse.export import moments
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.extras import WANDB

PROJECT: Final = "overwatch"
_NOT_ID: Final = re.compile(r"[^\w-]+")


def wandb_run(run_history: RunHistory, out: Path, table: str = "metrics") -> int:
    """Write `wandb/offline-run-…` into a folder; returns how many values it has. Raises `AnalyseError`."""
    if table != "metrics":
        raise AnalyseError(f"wandb holds metrics only; write {table} as csv or parquet")
    try:
        import wandb
    except ImportError as error:
        raise AnalyseError(WANDB.need) from error
    if str(out) == "-" or (out.exists() and not out.is_dir()):
        raise AnalyseError(f"wandb needs a folder; {out} is none")
    found = moments(run_history)
    rows = [{"update" if one.is_update else "second": one.step} | one.values for one in found]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with wandb.init(
            project=PROJECT,
            name=run_history.run.run_id,
            id=_NOT_ID.sub("-", run_history.run.run_id)[:64],
            group=run_history.run.group,
            config=run_history.config,
            dir=str(out),
            mode="offline",
            reinit="create_new",
            settings=_settings(wandb, run_history),
        ) as run:
            for step in ("update", "second"):
                tags = {tag for one in found if one.is_update is (step == "update") for tag in one.values}
                for head in sorted({tag.partition("/")[0] for tag in tags}):
                    run.define_metric(f"{head}/*", step_metric=step)
            for one, row in zip(found, rows, strict=True):
                run.log({"_timestamp": one.time} | row)
            run.summary["outcome"] = run_history.run.outcome
    except (OSError, wandb.Error) as error:
        raise AnalyseError(f"{out}: wandb wrote no run: {error}") from error
    finally:
        wandb.teardown()  # its service writes, and may still do so when `finish` has returned
    return sum(len(one.values) for one in found)


def _settings(wandb: Any, run_history: RunHistory) -> Any:
    """Of this machine nothing is written: the run was another's."""
    return wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_start_time=run_history.began,
        host=run_history.run.node or "",
    )

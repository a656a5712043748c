"""Slurm's commands on this machine, as far as the recipes use them: `python fake_slurm.py sbatch ...`.

Variables are those that recorded environments of real jobs have: a batch script is process 0 and has no step,
each `srun` is a step, counted from 0 again where the job was requeued, and each task of an array is a job of
its own. A heterogeneous job is a job for each component; its script belongs to the first one. Under
FAKE_SLURM lies what a controller would know. A job's time is up when the file FAKE_SLURM_UP is there, which
its first life is given only.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

STATE: Final = Path(os.environ["FAKE_SLURM"])
FIRST_JOB: Final = 1001
POLL_S: Final = 0.05


def sbatch(words: list[str]) -> int:
    """Run a script for each task of its array, side by side, each until it is requeued no more."""
    script, *arguments = [word for word in words if word != "--wait"]
    components = [
        _options(part) for part in re.split(r"^#SBATCH hetjob$", Path(script).read_text(), flags=re.MULTILINE)
    ]
    options = components[0]
    lowest, highest = map(int, options.get("array", "0-0").split("-"))
    lives = {}
    for job, task in enumerate(range(lowest, highest + 1), start=FIRST_JOB):
        array = {"SLURM_ARRAY_JOB_ID": str(FIRST_JOB), "SLURM_ARRAY_TASK_ID": str(task)}
        env = _of_job(job, options) | (array if "array" in options else {})
        env |= _of_components(job, components) if len(components) > 1 else {}
        lives[job] = (env, subprocess.Popen(["bash", script, *arguments], env={**os.environ, **env}))
    worst = 0
    for job, (env, first) in lives.items():
        status, restarts = first.wait(), 0
        while (asked := STATE / f"requeue-{job}").exists():
            asked.unlink()
            (STATE / f"steps-{job}").unlink()
            restarts += 1
            again = {**os.environ, **env, "SLURM_RESTART_COUNT": str(restarts)}
            status = subprocess.run(["bash", script, *arguments], env=again, check=False).returncode
        worst = max(worst, status)
    return worst


def _options(part: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", part, re.MULTILINE))


def _of_job(job: int, options: dict[str, str]) -> dict[str, str]:
    nodes, tasks = options.get("nodes", "1"), _tasks(options)
    return {
        "SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job), "SLURM_JOB_NAME": options["job-name"],
        "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks, "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_NODELIST": "localhost", "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_CLUSTER_NAME": "fake",
        "SLURM_JOB_PARTITION": "all",
    }  # fmt: skip


def _tasks(options: dict[str, str]) -> str:
    return options.get("ntasks") or str(
        int(options.get("nodes", "1")) * int(options.get("ntasks-per-node", "1"))
    )


def _of_components(job: int, components: list[dict[str, str]]) -> dict[str, str]:
    """What the script of a heterogeneous job has besides."""
    found = {"SLURM_HET_SIZE": str(len(components))}
    for group, options in enumerate(components):
        found |= {
            f"SLURM_JOB_ID_HET_GROUP_{group}": str(job + group),
            f"SLURM_NTASKS_HET_GROUP_{group}": _tasks(options),
            f"SLURM_JOB_NODELIST_HET_GROUP_{group}": "localhost",
        }
    return found


def srun(words: list[str]) -> int:
    """A step: as many tasks as its component has, or is asked for; its status is the worst of them."""
    asked: dict[str, str] = {}
    while words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        asked[name] = value
    if unknown := asked.keys() - {"het-group", "ntasks", "overlap"}:
        raise SystemExit(f"srun: unrecognized option {sorted(unknown)}")
    at = f"_HET_GROUP_{asked['het-group']}" if "het-group" in asked else ""
    job, tasks = os.environ[f"SLURM_JOB_ID{at}"], int(asked.get("ntasks", os.environ[f"SLURM_NTASKS{at}"]))
    with (STATE / f"steps-{job}").open("a") as counted:
        step = str(counted.tell())
        counted.write(".")
    of_step = {
        "SLURM_STEP_ID": step, "SLURM_STEPID": step, "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_JOB_ID": job, "SLURM_JOBID": job, "SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks),
    }  # fmt: skip
    started = [
        subprocess.Popen(
            words, env={**os.environ, **of_step, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}
        )
        for task in range(tasks)
    ]

    def forward(number: int, _: object) -> None:
        for task in started:
            task.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    up = os.environ.get("FAKE_SLURM_UP")
    if up and "SLURM_RESTART_COUNT" not in os.environ:
        while not Path(up).exists() and any(task.poll() is None for task in started):
            time.sleep(POLL_S)
        for task in started:
            task.send_signal(signal.SIGUSR1)
    return max(task.wait() for task in started)


def scontrol(words: list[str]) -> int:
    """Mark a job to be queued again, or name the nodes."""
    if words[0] == "requeue":
        (STATE / f"requeue-{words[1]}").touch()
    else:
        print("127.0.0.1")
    return 0


if __name__ == "__main__":
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))

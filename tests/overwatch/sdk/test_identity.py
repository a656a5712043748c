"""Who a run is, and that its configuration gives no secret away."""

import argparse
import dataclasses
import re

import pytest

from overwatch.sdk import identity

ARRAY = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
"""What a batch script has, by which one program or several are started without `srun`."""


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        ("mine", {"OVERWATCH_RUN_ID": "theirs"}, "mine"),
        (None, {"OVERWATCH_RUN_ID": "a", "TORCHELASTIC_RUN_ID": "b"}, "a"),
        (None, {"OVERWATCH_RUN_ID": "", "TORCHELASTIC_RUN_ID": "b"}, "b"),
        (None, {"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}, "slurm-7.2"),
        (None, {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", **ARRAY}, "slurm-7_3.0"),
    ],
)
def test_the_launchers_id_is_used_unless_it_is_none(
    given: str | None, env: dict[str, str], expected: str
) -> None:
    """Argument, own variable, torchrun, Slurm step; empty and `none` are unset."""
    assert identity.identify(given, "task", env=env).run_id == expected


def test_programs_of_one_batch_script_are_runs_by_their_commands() -> None:
    """`for seed in 1 2 3` makes three runs; a requeued job goes on with each."""
    seeds = [identity.identify(None, "ant", env=BATCH, command=("train.py", f"--seed={n}")) for n in (1, 2)]
    assert all(re.fullmatch(r"slurm-7\.batch\.[0-9a-f]{4}", one.run_id) for one in seeds)
    assert seeds[0].run_id != seeds[1].run_id
    requeued = {**BATCH, "SLURM_RESTART_COUNT": "1"}
    again = identity.identify(None, "ant", env=requeued, command=("train.py", "--seed=2"))
    assert (again.run_id, again.attempt) == (seeds[1].run_id, 1)


def test_ranks_that_a_batch_script_started_are_one_run() -> None:
    """A launcher within it gives each rank arguments of its own, as DeepSpeed's does."""
    ranks = [{**BATCH, "WORLD_SIZE": "2", "RANK": str(rank)} for rank in (0, 1)]
    found = {
        identity.identify(None, "ant", env=env, command=("train.py", f"--local_rank={env['RANK']}")).run_id
        for env in ranks
    }
    assert found == {"slurm-7.batch"}


@pytest.mark.parametrize(
    "env",
    [{"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, {**BATCH, "SLURM_STEP_ID": "4294967290"}],
    ids=["salloc", "interactive"],
)
def test_what_a_person_starts_in_an_allocation_is_a_run_each_time(env: dict[str, str]) -> None:
    """Nothing is requeued there, and the same command may be typed twice."""
    first, second = (identity.identify(None, "ant", env=env) for _ in range(2))
    assert first.run_id != second.run_id
    assert first.run_id.startswith("ant-")


def test_tasks_of_a_job_are_ranks_only_in_a_step() -> None:
    """A batch script with four tasks runs once, until it calls `srun`."""
    assert identity.identify(None, None, env=BATCH).world_size is None
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    assert identity.identify(None, None, env={**BATCH, **step}).world_size == 2
    assert identity.identify(None, None, env={**BATCH, "SLURM_STEP_ID": "0"}).world_size == 4
    assert identity.identify(None, None, env={**BATCH, **step, "WORLD_SIZE": "8"}).world_size == 8


def test_an_attempt_counts_the_restarts_of_all_launchers() -> None:
    """Torchrun counts from 0 again in a job that was requeued; a number given by hand is the number."""
    both = {"TORCHELASTIC_RESTART_COUNT": "1", "SLURM_RESTART_COUNT": "2"}
    assert identity.identify(None, None, env=both).attempt == 3
    assert identity.identify(None, None, env={"TORCHELASTIC_RESTART_COUNT": "0"}).attempt == 0
    assert identity.identify(None, None, env={**both, "OVERWATCH_ATTEMPT": "7"}).attempt == 7
    assert identity.identify(None, None, env={}).attempt is None


def test_a_new_id_is_named_after_the_task() -> None:
    """`<task>-<mmdd-hhmm>-<4 hex>`, fit for a file name; two are never the same."""
    first, second = (identity.identify(None, "Grow It/Now", env={}).run_id for _ in range(2))
    assert re.fullmatch(r"grow-it-now-\d{4}-\d{4}-[0-9a-f]{4}", first)
    assert first != second
    assert identity.identify(None, None, env={}).run_id.startswith("run-")


def test_the_rank_is_the_launchers() -> None:
    """Argument, torchrun, Slurm, else 0."""
    assert identity.identify(None, None, rank=3, env={"RANK": "1"}).rank == 3
    assert identity.identify(None, None, env={"RANK": "1", "SLURM_PROCID": "2"}).rank == 1
    assert identity.identify(None, None, env={"SLURM_PROCID": "2"}).rank == 2
    assert identity.identify(None, None, env={"RANK": "first"}).rank == 0


STATIC = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "8"}


def test_ranks_of_one_machine_agree_by_their_launcher() -> None:
    """Without an id the launcher's process is one; another port of the same agent is the same run."""
    local = {**STATIC, "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "0"}
    ranks = [identity.identify(None, "ant", env={**local, "RANK": str(rank)}) for rank in range(8)]
    assert {rank.run_id for rank in ranks} == {ranks[0].run_id}
    assert [rank.rank for rank in ranks] == list(range(8))
    assert {rank.join for rank in ranks} == {None}
    again = {**local, "MASTER_PORT": "29501", "TORCHELASTIC_RESTART_COUNT": "1", "RANK": "3"}
    assert identity.identify(None, "ant", env=again).run_id == ranks[0].run_id
    assert identity.identify(None, "ant", env=again).attempt == 1


def test_ranks_of_several_machines_share_a_key_and_wait_for_rank_0() -> None:
    """Only the meeting point is common: rank 0 has a run id, the others a stand-in for one."""
    spread = {**STATIC, "LOCAL_WORLD_SIZE": "4"}
    first, second, other = (
        identity.identify(None, "ant", env={**spread, "RANK": str(rank)}) for rank in (0, 4, 7)
    )
    assert first.join == second.join == other.join
    assert first.join is not None
    assert first.run_id.startswith("ant-")
    assert second.run_id == other.run_id
    assert second.run_id.startswith("pending-")
    elsewhere = identity.identify(None, "ant", env={**spread, "RANK": "0", "MASTER_PORT": "29999"})
    assert elsewhere.join != first.join


def test_a_comparison_has_arms() -> None:
    """The group is the argument, else the environment's."""
    assert identity.identify(None, None, group="b", env={"OVERWATCH_GROUP": "a"}).group == "b"
    assert identity.identify(None, None, env={"OVERWATCH_GROUP": "a"}).group == "a"
    assert identity.identify(None, None, env={}).group is None


def test_secrets_never_leave() -> None:
    """Keys that sound secret at any depth, and passwords within URLs."""
    config = {
        "wandb": {"api_key": "k", "Token": "t"},
        "db": "postgres://me:hush@db/x",
        "PASSWORD": "p",
        "my_secret": {"deep": "s"},
    }
    stated = identity.config_text(config)
    assert stated == {
        "wandb.api_key": "[redacted]",
        "wandb.Token": "[redacted]",
        "db": "postgres://[redacted]@db/x",
        "PASSWORD": "[redacted]",
        "my_secret": "[redacted]",
    }


def test_a_config_may_be_a_dataclass_or_a_namespace() -> None:
    """Nested, flat, and bounded, even where it contains itself."""

    @dataclasses.dataclass
    class Config:
        rate: float = 0.5
        layers: tuple[int, ...] = (64, 64)

    stated = identity.config_text(argparse.Namespace(net=Config(), seed=1))
    assert stated == {"net.rate": "0.5", "net.layers": "(64, 64)", "seed": "1"}
    loop: dict[str, object] = {"x": 1}
    loop["loop"] = loop
    assert len(identity.config_text(loop)) <= identity.MAX_CONFIG
    assert identity.config_text(None) == {}

"""Who a run is, and that its configuration gives no secret away."""

import argparse
import dataclasses
import re

import pytest

from overwatch.sdk import identity


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        ("mine", {"OVERWATCH_RUN_ID": "theirs"}, "mine"),
        (None, {"OVERWATCH_RUN_ID": "a", "TORCHELASTIC_RUN_ID": "b"}, "a"),
        (None, {"OVERWATCH_RUN_ID": "", "TORCHELASTIC_RUN_ID": "b"}, "b"),
        (None, {"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}, "slurm-7.2"),
        (None, {"SLURM_JOB_ID": "7"}, "slurm-7.batch"),
        (None, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_ARRAY_TASK_ID": "3"}, "slurm-7.0.3"),
    ],
)
def test_the_launchers_id_is_used_unless_it_is_none(
    given: str | None, env: dict[str, str], expected: str
) -> None:
    """Argument, own variable, torchrun, Slurm step; empty and `none` are unset."""
    assert identity.run_id(given, "task", env) == expected


def test_a_new_id_is_named_after_the_task() -> None:
    """`<task>-<mmdd-hhmm>-<4 hex>`, fit for a file name; two are never the same."""
    first, second = identity.run_id(None, "Grow It/Now", {}), identity.run_id(None, "Grow It/Now", {})
    assert re.fullmatch(r"grow-it-now-\d{4}-\d{4}-[0-9a-f]{4}", first)
    assert first != second
    assert identity.run_id(None, None, {}).startswith("run-")


def test_the_rank_is_the_launchers() -> None:
    """Argument, torchrun, Slurm, else 0."""
    assert identity.rank(3, {"RANK": "1"}) == 3
    assert identity.rank(None, {"RANK": "1", "SLURM_PROCID": "2"}) == 1
    assert identity.rank(None, {"SLURM_PROCID": "2"}) == 2
    assert identity.rank(None, {"RANK": "first"}) == 0


def test_secrets_never_leave() -> None:
    """Keys that sound secret at any depth, and passwords within URLs."""
    config = {
        "wandb": {"api_key": "k", "Token": "t"},
        "db": "postgres://me:hush@db/x",
        "PASSWORD": "p",
        "my_secret": {"deep": "s"},
    }
    said = identity.config_text(config)
    assert said == {
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

    said = identity.config_text(argparse.Namespace(net=Config(), seed=1))
    assert said == {"net.rate": "0.5", "net.layers": "(64, 64)", "seed": "1"}
    loop: dict[str, object] = {"x": 1}
    loop["loop"] = loop
    assert len(identity.config_text(loop)) <= identity.MAX_CONFIG
    assert identity.config_text(None) == {}

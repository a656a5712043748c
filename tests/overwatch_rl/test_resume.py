"""A run that goes on from a checkpoint is the run that was never interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

from overwatch.events import CheckpointSaved, LogLine
from overwatch.objects.retrying import Patience
from overwatch_rl.algorithms.common import Plan
from overwatch_rl.algorithms.ppo import PPO, Batch, PPOConfig
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import Retention, Saving
from overwatch_rl.cli import main
from overwatch_rl.resume import differences, go_on, hash_of
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.trained import load_policy
from overwatch_rl.training import keeper
from overwatch_rl.training.keeper import CheckpointError, Keeper, Kept, position_of
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch_rl.kept import TIMES
from tests.overwatch_rl.servers import FaultProxy, s3_url

SMALL = ["--envs", "2", "--slots", "1", "--no-telemetry"]
STEPS = 7
"""Not a divisor of an episode: checkpoints lie within episodes."""
DEADLINE_S = 120.0
WORLDS: dict[str, tuple[str, dict[str, object], Plan]] = {
    "morphogenesis": ("mlp", {"slots": 2}, Plan()),
    "goodhart": ("conv", {"mode": "proxy", "horizon": 10}, Plan(channels_last=True, chunk=5)),
}
"""Network, settings and plan of each world that can be kept."""


class Seen(Silent):
    """What a run reported."""

    def __init__(self) -> None:
        self.updates: dict[int, dict[str, float]] = {}
        self.facts: list[Any] = []
        self.steps: list[int] = []

    def beat(self, step: int, duration_s: float) -> None:  # noqa: ARG002 the contract's
        """Keep the number."""
        self.steps.append(step)

    def update(self, index: int, values: Any) -> None:
        """Keep the numbers, times left out."""
        self.updates[index] = {name: value for name, value in values.items() if name not in TIMES}

    def fact(self, event: Any) -> None:
        """Keep it."""
        self.facts.append(event)


def training(updates: int, world_name: str = "morphogenesis") -> tuple[Trainer[Batch], Seen]:
    """A small one, with everything in it that has a state."""
    network, settings, plan = WORLDS[world_name]
    world = make(world_name, WorldConfig(num_envs=3), settings)
    algorithm = PPO(world.spec, PPOConfig(popart=True, target_kl=0.02, network=network), seed=5)
    algorithm.apply_plan(plan)
    seen = Seen()
    return Trainer(
        world, algorithm, TrainerConfig(updates=updates, steps=STEPS, seed=5), seen, lambda: None
    ), seen


def kept(made: Trainer[Batch], seen: Seen, folder: Path, every: int = 100) -> Keeper:
    """A keeper of a training."""
    run = Kept(run_id="r", config={}, config_hash="c")
    return Keeper(made, Manager(folder, Retention(keep=9)), run, seen, every=every)


def everything(made: Trainer[Batch]) -> dict[str, Tensor]:
    """All tensors of a training."""
    position = made.position()
    return {
        f"{part}.{name}": value.clone()
        for part in ("own", "algorithm", "world")
        for name, value in getattr(position, part).items()
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of those that differ in any bit; NaN is equal to itself."""
    assert set(one) == set(other)

    def raw(tensor: Tensor) -> Tensor:
        return tensor.detach().reshape(-1).contiguous().view(torch.uint8)

    return [
        name
        for name, tensor in one.items()
        if (tensor.dtype, tensor.shape) != (other[name].dtype, other[name].shape)
        or not torch.equal(raw(tensor), raw(other[name]))
    ]


def test_what_went_through_an_object_store_goes_on_to_the_bit(moto_address: str) -> None:
    """Saved into S3 while requests fail, fetched from there, every number and tensor is equal."""
    whole, reported = training(4)
    whole.run()
    with FaultProxy(moto_address, rate=0.2, seed=2) as proxy:
        url = s3_url(proxy.address, uuid4().hex)
        first, before = training(2)
        patience = Patience(request_s=0.3, first_s=0.01, most_s=0.05)
        manager = Manager(url, Retention(keep=9), Saving(patience=patience))
        run = Kept(run_id="r", config={}, config_hash="c")
        keeping = Keeper(first, manager, run, before, every=100)
        first.run()
        keeping.close(is_whole=True)
        second, after = training(4)
        go_on(second, find_checkpoint(url, patience=patience))
    assert equal(everything(second), everything(first)) == []
    second.run()

    assert equal(everything(second), everything(whole)) == []
    assert before.updates | after.updates == reported.updates


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_two_and_two_updates_are_four(tmp_path: Path, world: str) -> None:
    """Every tensor and every number but times, to the last bit, in the middle of episodes."""
    whole, reported = training(4, world)
    whole.run()
    first, before = training(2, world)
    keeping = kept(first, before, tmp_path)
    first.run()
    keeping.close(is_whole=True)
    second, after = training(4, world)
    go_on(second, find_checkpoint(tmp_path))
    assert equal(everything(second), everything(first)) == []
    second.run()

    assert equal(everything(second), everything(whole)) == []
    assert before.updates | after.updates == reported.updates
    assert before.steps + after.steps == reported.steps == list(range(1, 4 * STEPS + 1))
    assert (list(after.updates), second.collector.steps_done) == ([3, 4], 4 * STEPS)
    (saved,) = (fact for fact in before.facts if isinstance(fact, CheckpointSaved))
    assert (saved.update, saved.path) == (2, str(tmp_path / "001-00000002"))
    assert saved.size_bytes is not None
    assert saved.duration_s is not None


def test_another_rank_goes_on_in_episodes_of_its_own(tmp_path: Path) -> None:
    """It has the first one's weights, and neither its world nor its draws."""
    made, seen = training(2)
    keeping = kept(made, seen, tmp_path)
    made.run()
    keeping.close(is_whole=True)
    first, other = training(4)[0], training(4)[0]
    go_on(first, find_checkpoint(tmp_path))
    go_on(other, find_checkpoint(tmp_path), is_first=False)
    one, two = first.position(), other.position()

    assert all(torch.equal(value, two.algorithm[name]) for name, value in one.algorithm.items())
    assert (other.updates_done, other.collector.steps_done) == (2, 2 * STEPS)
    assert not torch.equal(one.own["draws"], two.own["draws"])
    assert any(not torch.equal(value, two.world[name]) for name, value in one.world.items())


@pytest.mark.parametrize("updates", [2, 3])
def test_saves_come_every_so_many_updates_and_at_the_end(tmp_path: Path, updates: int) -> None:
    """None twice for the same update, each as a fact once it is there."""
    made, seen = training(updates)
    keeping = kept(made, seen, tmp_path, every=2)
    made.run()
    keeping.close(is_whole=True)

    assert [fact.update for fact in seen.facts if isinstance(fact, CheckpointSaved)] == sorted({2, updates})
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_dir()) == sorted(
        {"001-00000002", f"001-{updates:08d}"}
    )


def test_a_world_that_is_too_large_is_left_out_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; what resumes learns on in new episodes."""
    monkeypatch.setattr(keeper, "MOST_WORLD_BYTES", 100)
    made, seen = training(2)
    keeping = kept(made, seen, tmp_path, every=1)
    made.run()
    keeping.close(is_whole=True)
    lines = [fact.message for fact in seen.facts if isinstance(fact, LogLine)]
    position = position_of(find_checkpoint(tmp_path))

    assert [line for line in lines if "MiB" in line] == [
        "the world's state of 0 MiB is too large: a resumed run begins new episodes"
    ]
    assert position.world == {}
    second, _ = training(3)
    second.go_on(position)
    assert second.collector.episodes.lengths.tolist() == [0, 0, 0]
    assert second.run() == "completed"


def test_the_last_save_is_needed(tmp_path: Path) -> None:
    """A run whose last checkpoint cannot be written has failed, and the error names the folder."""
    made, seen = training(1)
    keeping = kept(made, seen, tmp_path / "to")
    made.run()
    shutil.rmtree(tmp_path / "to")
    (tmp_path / "to").touch()

    with pytest.raises(CheckpointError, match=r"last checkpoint in .*to was not written"):
        keeping.close(is_whole=True)
    assert "was not written" in next(fact.message for fact in seen.facts if isinstance(fact, LogLine))


def run(*words: str | Path) -> Result:
    """The command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def state_of(folder: Path) -> State:
    """Of one checkpoint."""
    return find_checkpoint(folder).state


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one update, kept."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    made = run("train", *SMALL, "--updates", "1", "--run-id", "one-run", "--lr", "0.002", "--out", folder)
    assert made.exit_code == 0, made.output
    return folder


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--lr", "0.003"], "--lr is 0.003, the checkpoint was trained with 0.002; leave it out"),
        (["--envs", "3"], "--envs is 3, the checkpoint was trained with 2"),
        (["--slots", "2"], "--set slots is 2, the checkpoint was trained with 1"),
        (["--set", "slots=2"], "--set slots is 2, the checkpoint was trained with 1"),
        (["--seed", "3"], "--seed is 3, the checkpoint was trained with 0"),
        (["--steps", "30"], "--steps is 30, the checkpoint was trained with 60"),
        (["--target-kl", "0.1"], "--target-kl is 0.1, the checkpoint was trained with None"),
        (["--gamma", "0.5"], "--gamma is 0.5, the checkpoint was trained with 0.995"),
        (["--anneal-updates", "9"], "--anneal-updates is 9, the checkpoint was trained with None"),
        (["--normalise-observations"], "is True, the checkpoint was trained with False"),
        (["--ppo", "clip=0.3"], "--ppo clip is 0.3, the checkpoint was trained with 0.2"),
        (["--ppo", "clipp=1"], "ppo has no setting 'clipp'"),
        (["--world", "mars"], "--world is mars, the checkpoint was trained with morphogenesis"),
        (["--updates", "1"], "has had 1 updates; give --updates with more, or --seconds"),
        ([], "has had 1 updates; give --updates with more, or --seconds"),
        (["--checkpoint-every", "0"], "checkpoint-every is 0; use 1 or more"),
        (["--updates", "2", "--keep", "0"], "keep is 0; use 1 or more"),
    ],
)
def test_what_would_not_be_the_same_run_is_refused(trained: Path, flags: list[str], error: str) -> None:
    """The error names the flag, both values and the fix; the checkpoint stays the newest."""
    more = [] if "--updates" in flags or not flags else ["--updates", "2"]
    found = run("train", "--no-telemetry", "--resume", trained, *flags, *more)

    assert (found.exit_code, error in " ".join(found.output.split())) == (2, True), found.output
    assert find_checkpoint(trained).state.updates == 1


def test_a_resumed_run_keeps_its_settings_id_and_folder(trained: Path, tmp_path: Path) -> None:
    """Flags that are left out are the checkpoint's; update and lineage go on; the same flags may be given."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    found = run(
        "train", "--no-telemetry", "--resume", folder, "--updates", "2", "--lr", "0.002", "--envs", "2"
    )
    before, after = find_checkpoint(trained).state, find_checkpoint(folder).state

    assert found.exit_code == 0, found.output
    assert (after.run_id, after.lineage, after.updates, after.steps) == ("one-run", 2, 2, 120)
    assert after.config == before.config | {"updates": 2}
    assert after.config_hash == before.config_hash == hash_of(dict(after.config))
    assert load_policy(folder).config.learning_rate == 0.002
    elsewhere = run(
        "train", "--no-telemetry", "--resume", folder, "--updates", "3", "--out", tmp_path / "new"
    )
    assert elsewhere.exit_code == 0, elsewhere.output
    assert find_checkpoint(tmp_path / "new").state.updates == 3
    assert find_checkpoint(folder).state == after


def test_a_job_begins_and_goes_on_with_the_same_words(tmp_path: Path) -> None:
    """As of a launcher that starts a failed group again: what is in `--out` decides."""
    folder = tmp_path / "run"
    words = ("train", *SMALL, "--run-id", "a-job", "--out", folder, "--resume")
    begun = run(*words, "--updates", "1")
    assert begun.exit_code == 0, begun.output
    assert (find_checkpoint(folder).state.lineage, find_checkpoint(folder).state.updates) == (1, 1)
    again = run(*words, "--updates", "2")
    assert again.exit_code == 0, again.output
    state = find_checkpoint(folder).state

    assert (state.run_id, state.lineage, state.updates) == ("a-job", 2, 2)
    refused = run("train", "--resume")
    assert (refused.exit_code, "give --out, or a place" in refused.output) == (2, True)


def test_a_run_that_goes_on_elsewhere_is_another_run(trained: Path, tmp_path: Path) -> None:
    """Of two lines from one checkpoint none has run and lineage of the other: the first may go on, too."""
    words = ("train", "--no-telemetry", "--resume", trained, "--updates", "2", "--out", tmp_path / "new")
    refused = run(*words, "--run-id", "one-run")
    assert (refused.exit_code, "--run-id is one-run, which goes on in" in refused.output) == (2, True)
    assert run(*words).exit_code == 0
    assert run("train", "--no-telemetry", "--resume", tmp_path / "new", "--updates", "3").exit_code == 0
    states = [state_of(one) for one in sorted((tmp_path / "new" / "checkpoints").glob("0*-*"))]

    assert [(one.lineage, one.updates) for one in states] == [(2, 2), (3, 3)]
    (name,) = {one.run_id for one in states}
    assert name not in ("", "one-run")


def test_a_machine_that_differs_is_named(trained: Path) -> None:
    """Numbers are then equal to rounding only."""
    state = find_checkpoint(trained).state
    system: dict[str, object] = {**msgspec.convert(state.config["system"], dict), "threads": 2, "torch": "9"}

    assert differences(state, dict(state.config)) == []
    assert differences(state, state.config | {"system": system}) == [
        "threads was 1, is 2", f"torch was {torch.__version__}, is 9",
    ]  # fmt: skip


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """`kill -9` in the middle; the resumed run reaches its plan, with the numbers of one that never died."""
    command = [
        sys.executable,
        "-m",
        "overwatch_rl.cli",
        "train",
        *SMALL,
        "--steps",
        "8",
        "--updates",
        "100000",
    ]
    with subprocess.Popen(
        [*command, "--updates", "100000", "--checkpoint-every", "1", "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        until = time.monotonic() + DEADLINE_S
        while not (tmp_path / "run/checkpoints/latest").exists():
            assert time.monotonic() < until, "no checkpoint within the deadline"
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    reached = find_checkpoint(tmp_path / "run").state.updates
    resumed = run("train", "--no-telemetry", "--resume", tmp_path / "run", "--updates", str(reached + 1))
    assert resumed.exit_code == 0, resumed.output
    after = find_checkpoint(tmp_path / "run").state

    assert (after.lineage, after.updates, after.steps) == (2, reached + 1, 8 * (reached + 1))


def test_the_manifest_is_json_for_anyone(trained: Path) -> None:
    """Every tensor with file, shape, dtype and digest; every file with bytes, hash and URI."""
    found = find_checkpoint(trained)
    path, returns = found.path, found.tensors("trainer.safetensors")["returns"]
    manifest = json.loads((path / "MANIFEST.json").read_text())

    assert set(manifest["files"]) | {"MANIFEST.json"} == {one.name for one in path.iterdir()}
    assert manifest["tensors"]["trainer.safetensors:returns"] == {
        "file": "trainer.safetensors", "dtype": "F64", "shape": [2],
        "xxh3": xxh3_of(returns.numpy().tobytes()),
    }  # fmt: skip
    assert manifest["files"]["state.json"]["uri"] == (path / "state.json").as_uri()
    assert msgspec.json.decode((path / "state.json").read_bytes())["run_id"] == "one-run"

"""Two ranks over gloo: they learn as one process on the joined rows, and stop together."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from overwatch_rl.algorithms.common import Alone
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.training.distributed import Place, joined, place, together
from tests.overwatch_rl.algorithms.small import same, world_spec
from tests.overwatch_rl.training import rank as program

LONGEST_S = 120
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with what two ranks found, which have ended; the store is held here, as torchrun does."""
    folder = tmp_path_factory.mktemp("ranks")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = os.environ | {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, "-m", program.__name__, str(folder)],
            env=shared | {"RANK": str(number), "LOCAL_RANK": str(number)},
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    ended = time.monotonic() + LONGEST_S
    try:
        for one in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(max(ended - time.monotonic(), 0.0))
    finally:
        for one in started:
            one.kill()
    printed = [one.communicate()[0] for one in started]
    assert [one.returncode for one in started] == [0, 0], "\n".join(printed)
    yield folder
    del store


def test_gradients_of_ranks_equal_those_of_one_process_on_the_joined_rows(ranks: Path) -> None:
    """To 1e-6, with PopArt moved by the returns of both; weights are those of the first rank."""
    found = [torch.load(ranks / f"rank{number}.pt") for number in (0, 1)]
    alone = PPO(world_spec(), program.STEPPED, seed=0)
    expected = program.gradients(alone, program.both())

    assert same(found[0]["popart"], found[1]["popart"])
    for name, value in alone.popart.state_dict().items():
        assert torch.allclose(found[0]["popart"][name], value, rtol=1e-12)
    for first, second, one in zip(found[0]["gradients"], found[1]["gradients"], expected, strict=True):
        assert torch.equal(first, second)
        assert torch.allclose(first, one, atol=1e-6)
    assert any(float(one.abs().max()) > 1e-3 for one in expected)


def test_one_rank_that_has_moved_too_far_stops_both(ranks: Path) -> None:
    """Neither waits for the other for ever; both skip the same minibatches and keep the same weights."""
    found = [torch.load(ranks / f"rank{number}.pt") for number in (0, 1)]
    kls = [one["stats"]["kl_joint"] for one in found]

    assert kls[0] < 1.5 * program.STOPPING.target_kl < kls[1]
    assert [one["stats"]["minibatches_skipped"] for one in found] == [12.0, 12.0]
    assert same(found[0]["weights"], found[1]["weights"])


def test_a_rank_knows_how_long_it_waited_for_the_others(ranks: Path) -> None:
    """Since it was asked last."""
    for number in (0, 1):
        first, again = torch.load(ranks / f"rank{number}.pt")["waited"]
        assert first > 0
        assert again == 0


def test_the_command_trains_under_torchrun_and_the_first_rank_alone_prints_and_writes(ranks: Path) -> None:
    """Both end as completed; their worlds differ."""
    printed = [json.loads((ranks / f"printed{number}.json").read_text()) for number in (0, 1)]

    assert "update 2/2" in printed[0]
    assert "run completed" in printed[0]
    assert printed[1] == ""
    assert (ranks / "out0" / "summary.json").exists()
    assert not (ranks / "out1").exists()


def test_a_process_that_torchrun_did_not_start_is_alone() -> None:
    """Without its variables, and where it is the only one."""
    assert place({}) == Place()
    assert place({"WORLD_SIZE": "1"}) == Place()
    with joined(Place(), "cpu") as found:
        assert found.size == 1
    assert together(Alone(), lambda: "interrupted", 8)() == "interrupted"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"RANK": None}, "RANK is not set; start with torchrun"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'; use a whole number"),
        ({"RANK": "2"}, "RANK is 2 of 2 processes; use 0 to 1"),
    ],
)
def test_variables_that_do_not_fit_are_refused(changed: dict[str, str | None], words: str) -> None:
    """The error names the variable and the fix."""
    whole = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    with pytest.raises(ValueError, match=words):
        place({name: value for name, value in (whole | changed).items() if value is not None})


def test_ranks_share_weights_and_differ_in_worlds_and_devices() -> None:
    """Seeds of worlds are apart; on CUDA each has the card of its place."""
    first, second = Place(size=2), Place(rank=1, local_rank=1, size=2)

    assert first.seed(7) == 7 != second.seed(7)
    assert (second.device("cuda"), second.device("cpu"), Place().device("cuda")) == ("cuda:1", "cpu", "cuda")
    assert (first.is_first, second.is_first) == (True, False)

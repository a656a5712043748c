"""What is handed over arrives as it was, whatever becomes of either side."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from overwatch_rl.handover.sender import Sender

ECHO = "tests.overwatch_rl.handover.echo"
ROOT = Path(__file__).parents[3]
LONG_S = 120.0


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Sender]]:
    """Starts processes that write what they get as safetensors; they are ended."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = []

    def start(slots: int) -> Sender:
        started.append(Sender(ECHO, [str(tmp_path)], slots=slots))
        return started[-1]

    yield start
    for one in started:
        one.close(LONG_S)


def kinds() -> dict[str, Tensor]:
    """Tensors of every kind, shape and layout."""
    made = torch.Generator().manual_seed(1)
    values = torch.randn(4, 3, 2, 5, generator=made)
    return {
        "scalar": torch.tensor(7.5, dtype=torch.float64),
        "flag": torch.tensor([True, False, True]),
        "none": torch.zeros(0, 4),
        "half": values.to(torch.bfloat16),
        "codes": torch.arange(13, dtype=torch.uint8),
        "wide": torch.arange(6).view(2, 3),
        "last": values.contiguous(memory_format=torch.channels_last),
        "view": values[::2, :, 0].transpose(0, 1),
        "leaf": values.clone().requires_grad_(),
    }


def test_every_kind_of_tensor_arrives_bit_for_bit(sender: Callable[[int], Sender], tmp_path: Path) -> None:
    """Also by the second time, when the slot is used again and has grown."""
    made = sender(1)
    for number, more in enumerate((0, 100_000, 10), start=1):
        tensors = kinds() | {"more": torch.full((more,), float(number))}
        assert made.offer(number, tensors)
        assert made.answers(LONG_S) == [b"%d" % number]
        found = load_file(tmp_path / f"{number}.safetensors")
        assert set(found) == set(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor.detach())


def test_no_free_slot_is_an_answer_and_not_a_wait(sender: Callable[[int], Sender], tmp_path: Path) -> None:
    """Two slots take two; the process goes on as soon as it may."""
    (tmp_path / "hold").touch()
    made = sender(2)

    assert [made.offer(number, {}) for number in (1, 2, 3)] == [True, True, False]
    assert made.answers() == []
    (tmp_path / "hold").unlink()
    found: list[bytes] = []
    while made.is_busy:
        found += made.answers(LONG_S)
    assert found == [b"1", b"2"]
    assert made.offer(4, {})


def test_a_process_that_is_gone_is_seen(sender: Callable[[int], Sender], tmp_path: Path) -> None:
    """Nothing is taken any more, nothing raises."""
    (tmp_path / "hold").touch()
    made = sender(1)
    assert made.offer(1, {})
    os.kill(made.pid, signal.SIGKILL)

    assert made.answers(LONG_S) == []
    assert (made.is_gone, made.is_busy, made.offer(2, {})) == (True, False, False)


def test_a_kind_that_cannot_be_kept_is_named(sender: Callable[[int], Sender]) -> None:
    """With what can."""
    made = sender(1)
    with pytest.raises(ValueError, match=r"z is of torch.complex64; hand over one of bool"):
        made.offer(1, {"z": torch.zeros(1, dtype=torch.complex64)})
    assert made.offer(2, {})


def test_a_killed_sender_leaves_nothing_undone(tmp_path: Path) -> None:
    """The process finishes what it got, then ends by itself, without a farewell."""
    program = (
        "import os, signal, torch\n"
        "from overwatch_rl.handover.sender import Sender\n"
        f"made = Sender({ECHO!r}, [{str(tmp_path)!r}], slots=2)\n"
        "made.offer(1, {'a': torch.ones(3)}); made.offer(2, {'a': torch.ones(3)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    (tmp_path / "hold").touch()
    ran = subprocess.run([sys.executable, "-c", program], check=False, env=env, stderr=subprocess.DEVNULL)
    (tmp_path / "hold").unlink()

    assert ran.returncode == -signal.SIGKILL
    until = time.monotonic() + LONG_S
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert (tmp_path / "ended").read_text() == "farewell False"
    assert {one.name for one in tmp_path.glob("*.safetensors")} == {"1.safetensors", "2.safetensors"}

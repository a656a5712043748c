"""Checkpoints go into an object store beside the training, as into a folder."""

import os
import signal
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import torch

from overwatch.objects.retrying import Patience
from overwatch.objects.store import open_store
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import Retention, Saving, claim
from overwatch_rl.checkpoints.writer import Written
from tests.overwatch_rl.checkpoints.made import state
from tests.overwatch_rl.servers import FaultProxy, s3_url

LONG_S = 120.0
SOON = Patience(deadline_s=1.0, request_s=10.0, first_s=0.01, most_s=0.05)
TENSORS = {"policy.safetensors:policy.w": torch.arange(5.0), "algorithm.safetensors:order": torch.ones(3)}


@pytest.fixture
def proxy(moto_address: str) -> Iterator[FaultProxy]:
    """A server that is whole, until its `rate` is raised."""
    with FaultProxy(moto_address, rate=0.0, kinds=("error", "drop")) as made:
        yield made


def waited(manager: Manager) -> list[Written]:
    """What became of the save that is under way."""
    until = time.monotonic() + LONG_S
    while not (done := manager.finished(1.0)):
        assert time.monotonic() < until
    return done


def test_a_store_that_is_gone_costs_the_save_only(proxy: FaultProxy) -> None:
    """The next one is written when it is back."""
    url = s3_url(proxy.address, uuid4().hex)
    manager = Manager(url, Retention(), Saving(patience=SOON))
    proxy.rate = 1.0
    manager.save(state(1), TENSORS)
    (failed,) = waited(manager)
    assert failed.error is not None
    assert "tries in" in failed.error
    proxy.rate = 0.0
    assert [one.error for one in manager.close(state(2), TENSORS)] == [None]
    assert find_checkpoint(url).state.updates == 2


def test_where_nothing_can_be_written_training_does_not_begin(proxy: FaultProxy) -> None:
    """The error names the place, without its options."""
    proxy.rate = 1.0
    with pytest.raises(ValueError, match=r"s3://bucket/x cannot be written: .*; name another place"):
        Manager(s3_url(proxy.address, "x"), Retention(), Saving(patience=SOON))
    with pytest.raises(ValueError, match="ftp://x is no store"):
        Manager("ftp://x", Retention())


def test_a_process_that_outlives_its_trainer_is_kept_out(proxy: FaultProxy) -> None:
    """What it still holds when another goes on is written nowhere, and the error has the reason."""
    url = s3_url(proxy.address, uuid4().hex)
    manager = Manager(url, Retention(), Saving(patience=SOON))
    manager.save(state(1), TENSORS)
    waited(manager)
    assert manager._sender is not None
    os.kill(manager._sender.pid, signal.SIGSTOP)
    manager.save(state(2), TENSORS)
    assert claim(open_store(url, SOON)) == 2
    os.kill(manager._sender.pid, signal.SIGCONT)
    (fenced,) = waited(manager)

    assert fenced.is_fenced
    assert fenced.error is not None
    assert "is written by another training, of lineage 2" in fenced.error
    manager.close(None, {})
    assert find_checkpoint(url).state.updates == 1

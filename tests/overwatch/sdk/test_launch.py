"""What torch reports of its devices goes along with a run's start."""

import sys
from types import SimpleNamespace

import pytest

from overwatch.sdk.launch import torch_lanes

UUID = "0a1b2c3d-0000-1111-2222-333344445555"


class Cuda:
    """CUDA as torch shows it: one device."""

    def __init__(self, *, initialized: bool, uuid: str | None = UUID) -> None:
        self._initialized = initialized
        self._known = SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)

    def is_initialized(self) -> bool:
        """Whether the trainer has used CUDA."""
        return self._initialized

    def get_device_properties(self, device: str) -> SimpleNamespace:
        """Raises on a device that is not there; must not be called before CUDA is in use."""
        assert self._initialized
        if device not in ("cuda", "cuda:0"):
            raise AssertionError("Invalid device id")
        return self._known


def use(monkeypatch: pytest.MonkeyPatch, cuda: Cuda) -> None:
    """This process has loaded a torch with this CUDA."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, device=str))


def test_a_device_in_use_has_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the trainer's word for it; the processor and a device that is not there are left out."""
    use(monkeypatch, Cuda(initialized=True))

    assert torch_lanes(["cuda:0", "cuda:9", "cpu"]) == {UUID: "cuda:0"}


def test_cuda_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that has not used CUDA yet keeps the choice of when."""
    use(monkeypatch, Cuda(initialized=False))

    assert torch_lanes(["cuda:0"]) == {}


def test_a_torch_without_uuids_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older release, or none at all."""
    use(monkeypatch, Cuda(initialized=True, uuid=None))
    assert torch_lanes(["cuda:0"]) == {}
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_lanes(["cuda:0"]) == {}

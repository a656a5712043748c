"""On processors that turn stores round, every record is fenced; here the fence runs though none is needed."""

import threading

import pytest

from overwatch.sdk.rings import file, source, writer
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.source import RingSource
from tests.overwatch.sdk.rings.test_ringset import fact
from tests.overwatch.sdk.rings.test_updates import Trainer


def test_intel_and_amd_need_no_fence_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine decides."""
    for machine, needed in (("x86_64", False), ("AMD64", False), ("aarch64", True), ("arm64", True)):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert (file._fence() is not None) is needed


def test_a_fence_never_waits_for_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads fence at once and none is left behind."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    fence = file._fence()
    assert fence is not None
    passed: list[int] = []

    def work() -> None:
        for _ in range(2000):
            fence()
        passed.append(1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert len(passed) == 8


def test_records_with_fences_arrive(rings: RingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record is fenced on its way in and out, and arrives."""
    fenced = 0

    def fence() -> None:
        nonlocal fenced
        fenced += 1

    for module in (writer, source):
        monkeypatch.setattr(module, "FENCE", fence)
    trainer = Trainer(rings)
    for index in range(5):
        before = fenced
        trainer.update(update=index, kl=1.0)
        assert fenced > before
    rings.put(fact(1))
    before = fenced
    items = RingSource(rings.path).read()
    assert fenced > before
    assert len(items) == 6

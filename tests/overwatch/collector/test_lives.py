"""Lives that were killed soon after their start make the next one hold less; all others do not."""

from pathlib import Path

import pytest

from overwatch.collector.lives import Lives
from tests.overwatch.collector.running import config, eventually, running


def test_lives_that_were_killed_are_counted_until_one_ends_well(tmp_path: Path) -> None:
    """One that was killed has stopped nothing."""
    for before in (0, 1, 2):
        lives = Lives(tmp_path)
        assert lives.killed == before
        lives.start()
        lives._timer.cancel()
    ended = Lives(tmp_path)
    ended.start()
    ended.stop()
    assert Lives(tmp_path).killed == 0


def test_a_life_that_lasts_was_not_killed_by_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is killed later."""
    monkeypatch.setattr("overwatch.collector.lives.LASTS_S", 0.01)
    Lives(tmp_path).start()
    lives = Lives(tmp_path)
    eventually(lambda: Lives(tmp_path).killed == 0)
    assert lives.killed in (0, 1)


@pytest.mark.parametrize("content", [b"", b"{", b'{"killed":"x"}', b'{"killed":-4}'])
def test_a_file_that_is_none_counts_none(tmp_path: Path, content: bytes) -> None:
    """A start never needs a person."""
    (tmp_path / "lives").write_bytes(content)
    assert Lives(tmp_path).killed == 0


def test_a_start_after_several_that_were_killed_holds_less_and_says_so(tmp_path: Path) -> None:
    """Half for each beyond two, and a condition on the health page; a clean stop ends that."""
    whole = config(tmp_path).exporters.aggregator.room(config(tmp_path).receivers.otlp.limits).bytes
    for killed, part in ((0, 1), (2, 1), (3, 2), (4, 4), (40, 8)):
        (tmp_path / "lives").write_text(f'{{"killed":{killed}}}')
        with running(tmp_path) as service:
            aggregator = service.context.aggregator
            assert aggregator is not None
            eventually(lambda aggregator=aggregator: aggregator.frame)
            assert aggregator._fold._room.bytes == whole // part
            said = service.context.health.degraded.get("memory", "")
            assert (f"{killed} starts in a row" in said) == (part > 1)
    with running(tmp_path) as service:
        assert "memory" not in service.context.health.degraded

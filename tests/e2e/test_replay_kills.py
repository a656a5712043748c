"""A durable table of sequences killed under load: the history that stays has every chunk exactly once."""

from pathlib import Path

import pytest

from overwatch_rl.replay.base import Durability
from overwatch_rl.replay.sequences import Sequences
from tests.e2e.replay_killing import Killing, kill_over_and_over
from tests.overwatch_rl.replay.sequencing import check, on_disk


def survive(folder: Path, level: Durability, lives: int) -> None:
    """Kill so often, and hold what was answered against what was trained and what is kept."""
    killing = Killing(folder, level, lives)
    kill_over_and_over(killing, lives)

    assert sorted(killing.trained) == list(range(killing.made))
    assert killing.unflagged == []
    assert killing.learner_deaths > lives // 5
    table = Sequences(on_disk(folder, level, items=1 << 20, bytes=64 << 20, memory_bytes=4_000))
    account = table.state.account
    check(table.state)
    assert table.store.recovery.damaged == 0
    assert table.store.recovery.lost == ()
    table.close()
    assert account.accepted.items == killing.made
    assert account.removed == {}
    assert account.acknowledged.items >= len(killing.saved)
    print(
        f"{killing.lives} lives, {killing.learner_deaths} of the learner: {killing.made} chunks = "
        f"{account.acknowledged.items} used + {account.leased.items} leased + {account.queued.items} queued; "
        f"{killing.redelivered} came again, all flagged"
    )
    assert killing.redelivered


@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", [Durability.FAST, Durability.FSYNC])
def test_a_dozen_kills_cost_nothing(tmp_path: Path, level: Durability) -> None:
    """No chunk that was answered is lost, none is served twice without a flag."""
    survive(tmp_path / "t", level, 12)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", [Durability.FAST, Durability.FSYNC])
def test_two_thousand_kills_cost_nothing(tmp_path: Path, level: Durability) -> None:
    """The same, longer, in one folder."""
    survive(tmp_path / "t", level, 2_000)

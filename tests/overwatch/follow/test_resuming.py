"""Following that begins again goes on behind what was delivered, and sends everything where it must."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch.catalog import Scope
from overwatch.events import Event, Measured, RunFinished, RunStarted
from overwatch.follow.files import File
from overwatch.follow.memory import Memory
from overwatch.follow.readers import by_name
from overwatch.follow.resuming import Resuming
from overwatch.follow.runs import Run
from overwatch.follow.story import ALIVE_NS, SECOND, Declared
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.simulate.delivery import Reported

NOW = 1_800_000_000 * SECOND
RESUMES = "run r: goes on behind 3 rows that were delivered before"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with three rows."""
    made = tmp_path / "progress.json"
    _write(made, 1, 2, 3)
    return made


def _write(path: Path, *updates: int) -> None:
    with path.open("a") as file:
        for update in updates:
            row = {"time/iterations": update, "train/approx_kl": 0.01, "_timestamp": NOW / SECOND + update}
            file.write(json.dumps(row) + "\n")


class Follow:
    """One `follow` of one file."""

    def __init__(
        self, path: Path, folder: Path, *, endpoint: str = "http://a", is_anew: bool = False
    ) -> None:
        kind = by_name(path.name)
        assert kind is not None
        self.run = Run("r", [File(path, kind.make)], Declared())
        self.resuming = Resuming(Memory(folder / "memory", endpoint), is_anew=is_anew)
        self.lines = list(self.resuming.recall([self.run], NOW))
        self._requests = 0

    def look(self, now: int = NOW + 10 * SECOND, *, answered: bool = True) -> list[Event]:
        """What it sends now."""
        return self._sent([*self.run.read(now), *self.run.alive(now)], answered=answered)

    def finish(self) -> list[Event]:
        """Its end."""
        return self._sent(self.run.finish(NOW + 20 * SECOND, "interrupted", None), answered=True)

    def _sent(self, requests: list[Reported], *, answered: bool) -> list[Event]:
        self._requests += len(requests)
        self.resuming.sent(self.run, self._requests)
        if answered:
            self.resuming.settled(self._requests)
        return [record.event for one in requests for record in decode(Signal.LOGS, one.body).records]


def _updates(events: list[Event]) -> list[int | None]:
    return [one.index for one in events if isinstance(one, Measured) and one.scope is Scope.POLICY]


def test_a_restart_goes_on_behind_what_was_delivered(path: Path, tmp_path: Path) -> None:
    """As another life, at once, since the program may write seldom; its updates are numbered on."""
    assert _updates(Follow(path, tmp_path).look()) == [1, 2, 3]
    again = Follow(path, tmp_path)
    began = again.look()
    _write(path, 4)

    assert again.lines == [RESUMES]
    assert [type(one) for one in began] == [RunStarted]
    assert _updates(again.look()) == [4]
    assert again.run.story.updates == 4


def test_what_was_not_answered_is_sent_again(path: Path, tmp_path: Path) -> None:
    """A kill between sending and the answer loses nothing."""
    first = Follow(path, tmp_path)
    assert _updates(first.look()) == [1, 2, 3]
    _write(path, 4, 5)
    assert _updates(first.look(answered=False)) == [4, 5]
    _write(path, 6)

    assert _updates(Follow(path, tmp_path).look()) == [4, 5, 6]


def test_a_run_whose_end_was_sent_begins_again_with_a_new_row(path: Path, tmp_path: Path) -> None:
    """Until then nothing is sent of it, no end either; nor are there signs of life of the time between."""
    first = Follow(path, tmp_path)
    first.look()
    assert [type(one) for one in first.finish()] == [RunFinished]
    assert Follow(path, tmp_path).finish() == []
    again = Follow(path, tmp_path)
    assert again.look() == []
    _write(path, 400)
    found = again.look(NOW + 400 * SECOND)

    assert [type(one) for one in found] == [RunStarted, Measured]
    assert _updates(found) == [400]
    assert len(again.look(NOW + 400 * SECOND + ALIVE_NS + 1)) == 1


def _truncate(path: Path) -> None:
    path.write_text("")
    _write(path, 1)


def _replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def _rewrite(path: Path) -> None:
    path.write_text(path.read_text().replace("0.01", "0.02"))


@pytest.mark.parametrize("change", [_truncate, _replace, _rewrite])
def test_another_file_is_sent_from_its_beginning(
    path: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """A shorter one, another of the same bytes, the same with other bytes."""
    Follow(path, tmp_path).look()
    change(path)
    again = Follow(path, tmp_path)

    assert again.lines == []
    assert _updates(again.look())[0] == 1


@pytest.mark.parametrize("other", [{"endpoint": "http://b"}, {"is_anew": True}])
def test_another_collector_gets_everything(path: Path, tmp_path: Path, other: dict[str, object]) -> None:
    """As does the same one where the user states it."""
    Follow(path, tmp_path).look()

    assert _updates(Follow(path, tmp_path, **other).look()) == [1, 2, 3]  # type: ignore[arg-type]


def test_a_memory_that_cannot_be_read_is_none(path: Path, tmp_path: Path) -> None:
    """Damaged, or of another version: everything is sent again."""
    Follow(path, tmp_path).look()
    for file in (tmp_path / "memory").iterdir():
        file.write_bytes(b"{")

    assert _updates(Follow(path, tmp_path).look()) == [1, 2, 3]


def test_a_line_that_was_cut_is_whole_after_a_restart(path: Path, tmp_path: Path) -> None:
    """Its first half was read before, and no row."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert _updates(Follow(path, tmp_path).look()) == [1, 2]
    with path.open("ab") as file:
        file.write(whole[-20:])

    assert _updates(Follow(path, tmp_path).look()) == [3]

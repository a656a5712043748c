"""What a test of the journal opens is closed after it, also where the test is about what nobody closed."""

from collections.abc import Iterator
from typing import Any

import pytest

from overwatch.journal import Folder
from overwatch.journal.segments import Log


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every log and folder, in the reverse of their order."""
    opened: list[Folder | Log] = []
    for kind in (Folder, Log):

        def make(self: Any, *rest: Any, begin: Any = kind.__init__, **named: Any) -> None:
            begin(self, *rest, **named)
            opened.append(self)

        monkeypatch.setattr(kind, "__init__", make)
    yield
    for one in reversed(opened):
        one.close()

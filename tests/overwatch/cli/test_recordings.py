"""What commands on whole recordings share: how much is done is shown on a terminal only."""

import re
import sys
from pathlib import Path

import pytest

from overwatch.cli.recordings import patience
from overwatch.feeds.inputs import open_input
from tests.overwatch.feeds import otlpfiles


@pytest.mark.parametrize("is_terminal", [True, False])
def test_how_much_is_read_is_shown_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    """In one line that is gone when it is over."""
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines(otlpfiles.reported(range(1, 9))))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    recorded = open_input(path)
    with patience(path, recorded):
        assert list(recorded.recorded())
    shown = capsys.readouterr().err

    parts = [int(part) for part in re.findall(rf"reading {re.escape(str(path))} +(\d+)%", shown)]
    assert parts == sorted(parts)
    assert (len(parts) >= 8, shown.endswith(" \r")) == (is_terminal, is_terminal)
    assert shown.count("\n") == 0

"""A message to a program: what it gets, and what its exit status means."""

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from overwatch.collector.exporters.command import CommandConfig
from overwatch.collector.exporters.notices import Notice
from overwatch.snapshot import Finding, Subject
from tests.overwatch.collector.exporters.test_webhook import Books, crashed, notifying

KEEP = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"


def notice() -> Notice:
    """A message about a collapse."""
    finding = Finding(
        id="policy-collapse:policy", code="policy-collapse", severity="critical", since=1_700_000_000.0,
        subject=Subject(scope="policy"), message="policy collapse: KL and clip beyond their limits",
        hint="stop; go back to the last good checkpoint", factors=("KL beyond its limit",),
    )  # fmt: skip
    return Notice(status="started", run_id="ppo-3", at=1_700_000_030.0, finding=finding)


def _python(code: str, *arguments: str, timeout_s: float = 30.0) -> CommandConfig:
    return CommandConfig(argv=(sys.executable, "-c", code, *arguments), timeout_s=timeout_s)


def test_a_message_is_json_on_standard_input(tmp_path: Path) -> None:
    """The webhook's own JSON; arguments are given as they stand, and no shell reads them."""
    hostile = f"{tmp_path}/$(touch pwned); a b"
    Path(hostile).parent.mkdir(parents=True, exist_ok=True)

    assert _python(KEEP, hostile).deliver(notice()) == ("", None)
    reported = json.loads(Path(hostile).read_bytes())
    assert (reported["version"], reported["status"], reported["run_id"]) == (1, "started", "ppo-3")
    assert reported["finding"]["code"] == "policy-collapse"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("raise SystemExit(0)", ("", None)),
        ("raise SystemExit(1)", ("exit status 1", None)),
        ("raise SystemExit(75)", ("exit status 75: another try", 0.0)),
        ("import os; os.kill(os.getpid(), 9)", ("exit status -9", None)),
        ("import sys; sys.stdin.close(); print('x' * 10**6, flush=True)", ("", None)),
    ],
)
def test_the_exit_status_decides_the_outcome(code: str, outcome: tuple[str, float | None]) -> None:
    """Arrived, lost, or another try; a program that reads nothing and prints much is none the worse."""
    assert _python(code).deliver(notice()) == outcome


def test_a_program_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    """And is tried again."""
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    trouble, again = _python(code, str(note), timeout_s=2.0).deliver(notice())

    assert (again, "was killed" in trouble) == (0.0, True)
    if note.exists():
        child = int(note.read_text())
        deadline = time.monotonic() + 30
        while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_program_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    """Once it is there, it gets what stands; the trouble names the program and no argument."""
    program, got, books = tmp_path / "page", tmp_path / "got", Books()
    notifier = notifying(CommandConfig(argv=(str(program), "canary-77"), timeout_s=30.0), books)
    notifier.start()
    try:
        notifier.publish(crashed(3))
        books.wait(lambda reported: reported.errors)
        staged = tmp_path / "staged"
        staged.write_text(f"#!/bin/sh\ncat > {got}\n")
        staged.chmod(0o755)
        os.rename(staged, program)  # noqa: PTH104 one step, so that it is never half there
        notifier.publish(crashed(3, ticks=1))
        books.wait(lambda reported: reported.arrived)
    finally:
        notifier.close()

    assert json.loads(got.read_bytes())["finding"]["code"] == "env-crashed"
    assert books.errors[0].startswith("page: cannot be started")
    assert "canary-77" not in "".join(books.errors)


@pytest.mark.parametrize(
    ("how", "stated"),
    [
        ({"argv": ("",)}, "argv is empty"),
        ({"argv": ("a",), "timeout_s": 61}, "61"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused(how: dict[str, object], stated: str) -> None:
    """With the value and the fix."""
    with pytest.raises(ValueError, match=stated):
        CommandConfig(**how)  # type: ignore[arg-type]

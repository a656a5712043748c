"""The published client of the wire (atroposlib 0.4.0): its own requests, and the package itself.

`published/transcript.jsonl` is what its environment and its trainer sent, each request with the answer of its
own server. `make long` runs the package, in a virtual environment of its own: in the folder that
`OVERWATCH_PUBLISHED` names, or made in `build/published`.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.overwatch_rl.rollouts import transcripts
from tests.overwatch_rl.rollouts.serving import Served, served

HERE: Final = Path(__file__).parent / "published"
ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = (("torch==2.13.0",), ("atroposlib==0.4.0",))
"""In this order: the second would bring another build of the first."""
INSTALL_S: Final = 1200
RUN_S: Final = 150

DIFFERENT: Final = {
    ("POST", "/register", "uuid"): "an id made up at each call",
    ("GET", "/status-env", "max_group_size"): "of registered environments too, not of the queue alone",
}
"""Fields whose value is another one on purpose; batches are compared apart."""


def firsts(batch: list[Any] | None) -> list[int] | None:
    """The first token of each group, which identifies the group."""
    return None if batch is None else [group["tokens"][0][0] for group in batch]


def test_each_request_of_the_published_client_has_its_answer() -> None:
    """Same statuses, and same values of all fields, but for those that are listed."""

    async def check(server: Served) -> None:
        groups: dict[str, list[Any]] = {"theirs": [], "ours": []}
        for exchange in transcripts.read(HERE / "transcript.jsonl"):
            ours = await transcripts.sent(server.client, exchange)
            assert ours.status == exchange.status, (exchange.path, ours.reply)
            for name, theirs in exchange.reply.items():
                if name == "batch":
                    assert (theirs is None) == (ours.reply["batch"] is None)
                    groups["theirs"] += theirs or []
                    groups["ours"] += ours.reply["batch"] or []
                elif (exchange.method, exchange.path, name) not in DIFFERENT:
                    assert (exchange.path, name, ours.reply[name]) == (exchange.path, name, theirs)
        # The same groups with the same fields; theirs came newest first, ours come oldest first.
        assert sorted(map(json.dumps, map(_sorted, groups["ours"]))) == sorted(
            map(json.dumps, map(_sorted, groups["theirs"]))
        )
        assert firsts(groups["theirs"]) == [3, 103, 1, 2, 6, 106, 4, 5]
        assert firsts(groups["ours"]) == [1, 2, 3, 103, 4, 5, 6, 106]

    served(check)


def _sorted(group: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(group.items()))


def _python() -> Path:
    """The interpreter that has the published package; skips where it cannot be had."""
    named = os.environ.get("OVERWATCH_PUBLISHED")
    folder = ROOT / "build" / "published" if named is None else Path(named)
    python = folder / "bin" / "python"
    if named is None and not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for packages in PACKAGES:
            command = [python, "-m", "pip", "install", "--quiet", *packages]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{packages[0]} could not be installed within {INSTALL_S} s")
            if done.returncode:
                pytest.skip(f"{packages[0]} cannot be installed: {done.stderr[-300:]}")
        (folder / "whole").touch()
    if not python.exists():
        pytest.skip(f"OVERWATCH_PUBLISHED is {folder}, which has no bin/python")
    return python


@pytest.mark.long
@pytest.mark.timeout(2 * INSTALL_S + RUN_S)
def test_the_published_client_itself_runs_against_the_server(tmp_path: Path) -> None:
    """It registers, sends alone and in lists, and ends its steps; its trainer gets each group once."""
    python = _python()

    async def check(server: Served) -> None:
        exchanges: list[transcripts.Exchange] = []
        async with transcripts.recorded(server.url, exchanges) as url:
            ran = await asyncio.create_subprocess_exec(
                python, HERE / "program.py", url, tmp_path, stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(RUN_S):
                out, _ = await ran.communicate()
        assert ran.returncode == 0
        reported = json.loads(out.splitlines()[-1])
        got = [first for batch in reported["batches"] for first in batch]
        print(f"{len(exchanges)} requests, {reported['sent']} items, batches {reported['batches']}")
        assert all(len(batch) == 2 for batch in reported["batches"])
        assert len(reported["batches"]) == 4
        assert len(set(got)) == len(got)
        assert {one.status for one in exchanges} == {200}
        paths = {one.path for one in exchanges}
        assert {"/register", "/register-env", "/info", "/batch", "/scored_data", "/scored_data_list"} <= paths
        kept = os.environ.get("OVERWATCH_KEEP_TRANSCRIPT")
        if kept is not None:
            transcripts.write(Path(kept), exchanges)

    served(check)

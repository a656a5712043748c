"""What was compiled again, as torch itself counts it."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from overwatch.catalog.compiling import COMPILE
from overwatch.events import LogLine
from overwatch.sdk.recompiles import WARM_UPDATES, Recompiles

torch = pytest.importorskip("torch")
Compiled = Callable[[object], object]


@pytest.fixture
def compiled() -> Compiled:
    """A function that is compiled anew for each shape, as nothing else in this process was."""
    torch._dynamo.reset()
    return torch.compile(lambda x: x * 2, backend="eager", dynamic=False)


def test_what_is_compiled_again_after_the_warm_up_is_counted_with_its_reason(compiled: Compiled) -> None:
    """First compilations and those of the warm-up do not count; an update without one adds nothing."""
    lines: list[LogLine] = []
    recompiles = Recompiles(lines.append)
    for update in range(WARM_UPDATES):
        compiled(torch.ones(2 + update))
        assert recompiles.values() == {"recompiles": 0.0}
    compiled(torch.ones(2))
    assert recompiles.values() == {"recompiles": 0.0}
    compiled(torch.ones(5))
    compiled(torch.ones(6))
    assert recompiles.values() == {"recompiles": 2.0}
    assert recompiles.values() == {"recompiles": 2.0}
    [line] = lines
    assert (line.subsystem, line.fields["count"]) == (COMPILE, "2")
    assert "size mismatch at index 0. expected" in line.fields["reason"]
    assert "actual 6" in line.fields["reason"]
    assert line.message.startswith("compiled again")


def test_another_function_is_no_recompile_and_a_second_watcher_counts_by_itself(compiled: Compiled) -> None:
    """A run that starts later knows nothing of what was before."""
    first = Recompiles(lambda _: None)
    for _ in range(WARM_UPDATES):
        compiled(torch.ones(3))
        first.values()
    torch.compile(lambda x: x + 1, backend="eager", dynamic=False)(torch.ones(3))
    assert first.values() == {"recompiles": 0.0}
    compiled(torch.ones(4))
    second = Recompiles(lambda _: None)
    assert [second.values() for _ in range(WARM_UPDATES + 1)][-1] == {"recompiles": 0.0}
    assert first.values() == {"recompiles": 1.0}


def test_where_nothing_is_compiled_there_is_no_number_and_torch_is_not_imported() -> None:
    """Absent, not 0."""
    script = """
import sys
from overwatch.sdk.recompiles import Recompiles
watched = Recompiles(print)
assert [watched.values() for _ in range(5)] == [{}] * 5
assert "torch" not in sys.modules
import torch
torch.ones(1)
assert watched.values() == {}
print("torch._dynamo" in sys.modules)
import torch._dynamo
assert watched.values() == {}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "False", "")


def test_a_release_of_torch_that_counts_otherwise_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is not a public name: without it the row is absent."""
    monkeypatch.delattr("torch._dynamo.utils.get_compilation_metrics")

    assert Recompiles(lambda _: None).values() == {}

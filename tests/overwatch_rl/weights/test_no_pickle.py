"""Weights are never unpickled: no code of whoever writes into a store runs in an actor."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

import overwatch_rl
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.manifest import artifact_of
from tests.overwatch_rl.weights.made import Run, manifest, tensors

PICKLERS = {"pickle", "_pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "cloudpickle"}
LOADERS = {"torch.load", "np.load", "numpy.load"}


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_not_run(run: Run, tmp_path: Path, protocol: int) -> None:
    """As an artifact, though the run's own key signed its manifest, and as a manifest."""
    trap = pickle.dumps(Trap(tmp_path / "sprung"), protocol)
    subscriber = run.subscriber()
    held = tensors(Version(1, 0))
    signed = run.signer.sign(manifest(Version(1, 0), trap, held))
    run.store.put(artifact_of(Version(1, 0)), trap)
    run.key.move(signed, run.verifier)

    assert subscriber.poll() is None
    assert subscriber.fault is not None
    assert "its artifact is no safetensors file" in subscriber.fault
    run.name(trap)
    assert run.subscriber().poll() is None
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)  # noqa: S301 the trap works
    assert (tmp_path / "sprung").exists()


def test_a_file_of_torch_is_refused(run: Run, tmp_path: Path) -> None:
    """It is a pickle in a zip."""
    held = tensors(Version(1, 0))
    torch.save(held, tmp_path / "file.pt")
    artifact = (tmp_path / "file.pt").read_bytes()
    signed = run.signer.sign(manifest(Version(1, 0), artifact, held))
    run.store.put(artifact_of(Version(1, 0)), artifact)
    run.name(msgspec.json.encode(signed))
    subscriber = run.subscriber()

    assert subscriber.poll() is None
    assert "its artifact is no safetensors file" in str(subscriber.fault)


def test_taking_weights_never_makes_an_unpickler(run: Run) -> None:
    """Every way into one ends the program; the weights are taken all the same."""
    run.put(Version(1, 0))
    program = """
import sys
from pathlib import Path
from tests.overwatch_rl.weights.made import Run, is_whole
run = Run(Path(sys.argv[1]))
import io, pickle, _pickle, marshal, torch
def refused(*_, **__):
    raise SystemExit("unpickled")
class Refused:
    __init__ = refused
for module in (pickle, _pickle):
    module.load = module.loads = refused
    module.Unpickler = Refused
pickle._Unpickler = Refused
torch.load = marshal.load = marshal.loads = refused
found = run.subscriber().poll()
sys.exit(0 if found is not None and is_whole(found) else "not taken")
"""
    root = str(Path(__file__).parents[3])
    words = [sys.executable, "-c", program, str(run.folder)]
    ran = subprocess.run(words, check=False, cwd=root, capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_module_names_a_pickler() -> None:
    """In the whole package: none imports one, nor calls a loader that would use one."""
    files = list(Path(str(overwatch_rl.__file__)).parent.rglob("*.py"))
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names} & PICKLERS
            elif isinstance(node, ast.ImportFrom):
                found |= {str(node.module).partition(".")[0]} & PICKLERS
            elif isinstance(node, ast.Attribute):
                found |= {ast.unparse(node)} & LOADERS

    assert len(files) >= 100
    assert found == set()

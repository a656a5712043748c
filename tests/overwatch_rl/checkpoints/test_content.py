"""What of a checkpoint is the same wherever it lies."""

import math
from pathlib import Path

import msgspec
import pytest

from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.signing import Verifier, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import Evaluation, Manifest, sealed, unsealed
from overwatch_rl.checkpoints.reading import find_checkpoint, verified
from overwatch_rl.checkpoints.store import (
    Retention,
    Saving,
    best_of,
    manifest_of,
    open_place,
    write_checkpoint,
)
from tests.overwatch_rl.checkpoints.made import FILES, files_of, state, write


def manifest(updates: int, score: float | None = None, run_id: str = "r") -> Manifest:
    """Of a checkpoint without files."""
    return manifest_of(state(updates, score=score, run_id=run_id), {}, {}, "training", None)


def evaluation(updates: int, mean_return: float) -> Evaluation:
    """Of a version of the first lineage."""
    return Evaluation(lineage=1, number=updates, mean_return=mean_return, episodes=8)


def test_the_best_is_that_of_evaluations_or_else_of_training() -> None:
    """Only of this run, only of versions that are there; the oldest of equal ones; no NaN."""
    own = [manifest(1, 0.5), manifest(2, 0.9), manifest(3, 0.9), manifest(4, math.nan), manifest(5)]
    other = [manifest(6, 7.0, run_id="other")]

    assert best_of(own + other, [], "r") == (Version(1, 2), "training")
    evaluated = [evaluation(3, -5.0), evaluation(1, -7.0), evaluation(9, 9.0), evaluation(6, 9.0)]
    assert best_of(own + other, evaluated, "r") == (Version(1, 3), "evaluation")
    assert best_of([manifest(5)], [], "r") == (None, "training")
    assert best_of(own, [evaluation(1, math.nan)], "r") == (None, "evaluation")


def test_a_format_to_come_is_refused(tmp_path: Path) -> None:
    """With what is read."""
    path = write(tmp_path, state(1)) / "MANIFEST.json"
    path.write_bytes(path.read_bytes().replace(b'"format": 2', b'"format": 3'))
    with pytest.raises(ValueError, match="has format 3, not 2; use its own version"):
        verified(path.parent)


def test_every_tensor_has_a_digest_of_its_own(tmp_path: Path) -> None:
    """Of its bytes."""
    found = find_checkpoint(write(tmp_path, state(3)))
    entry = found.manifest.tensors[f"{FILES[0]}:a"]

    assert entry.xxh3 == xxh3_of(found.tensors(FILES[0])["a"].numpy().tobytes())
    assert (entry.dtype, entry.shape) == ("F32", (64,))


def test_a_version_may_count_beyond_the_updates(tmp_path: Path) -> None:
    """After a resume from before what was published: name and order are the version's."""
    write(tmp_path, msgspec.structs.replace(state(4, lineage=2), number=9))
    write(tmp_path, msgspec.structs.replace(state(5, lineage=2), number=10))
    found = find_checkpoint(tmp_path)

    assert (found.path.name, found.state.updates, found.manifest.version) == (
        "002-00000010", 5, Version(2, 10),
    )  # fmt: skip


def test_compressed_files_are_read_alike(tmp_path: Path) -> None:
    """With another name, checked as they lie, and smaller."""
    plain = find_checkpoint(write(tmp_path / "plain", state(3), values=1 << 16))
    packed = find_checkpoint(write(tmp_path / "packed", state(3), values=1 << 16, zstd=3))

    assert set(packed.files) == {*(f"{name}.zst" for name in FILES), "state.json"}
    assert packed.manifest.tensors == plain.manifest.tensors
    for name in FILES:
        assert packed.tensors(name)["b"].equal(plain.tensors(name)["b"])
        assert packed.manifest.files[f"{name}.zst"].bytes * 10 < plain.manifest.files[name].bytes
    damaged = packed.path / f"{FILES[0]}.zst"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"policy.safetensors cannot be read"):
        packed.tensors(FILES[0])


def test_a_signed_checkpoint_is_distinguished_from_others(tmp_path: Path) -> None:
    """Unsigned, signed by another key, or changed and sealed anew, it is refused by who asks for a key."""
    mine, other = make_key(tmp_path / "mine"), make_key(tmp_path / "other")
    files, _held = files_of(state(3))
    saving = Saving(key=tmp_path / "mine")
    path = Path(write_checkpoint(open_place(tmp_path / "signed"), state(3), files, Retention(), saving).where)

    assert find_checkpoint(path, verifier=Verifier(mine.public)).path == path
    with pytest.raises(ValueError, match=r"is signed with key .*; name another checkpoint"):
        find_checkpoint(path, verifier=Verifier(other.public))
    with pytest.raises(ValueError, match="is signed with key ''"):
        find_checkpoint(write(tmp_path / "unsigned", state(3)), verifier=Verifier(mine.public))
    forged = msgspec.json.decode((path / "MANIFEST.json").read_bytes(), type=Manifest)
    forged = msgspec.structs.replace(forged, run_id="another").sealed()
    (path / "MANIFEST.json").write_bytes(msgspec.json.encode(forged))
    assert find_checkpoint(path).manifest.run_id == "another"
    with pytest.raises(ValueError, match="its signature is not one of key"):
        find_checkpoint(path, verifier=Verifier(mine.public))


@pytest.mark.parametrize("at", range(0, 90, 7))
def test_a_small_file_shows_that_it_is_damaged(at: int) -> None:
    """Whichever byte."""
    stored = sealed(evaluation(3, 1.5))
    assert unsealed(stored, Evaluation) is not None
    for bit in range(8):
        changed = stored[:at] + bytes([stored[at] ^ (1 << bit)]) + stored[at + 1 :]
        assert unsealed(changed, Evaluation) is None


def test_impossible_ways_of_saving_are_refused() -> None:
    """The error names the value."""
    for level in (-1, 20):
        with pytest.raises(ValueError, match=f"zstd is {level}; use a level of 1 to 19, or 0 for none"):
            Saving(zstd=level)

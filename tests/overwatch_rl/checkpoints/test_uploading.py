"""A checkpoint in an object store is whole or it is not there, and one training writes it."""

import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from overwatch.objects.retrying import Patience
from overwatch.objects.store import Store, open_store
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import Evaluation, sealed
from overwatch_rl.checkpoints.reading import find_checkpoint, place_and_version
from overwatch_rl.checkpoints.store import FencedError, Retention, claim, prune, read_pointer, versions_in
from tests.overwatch_rl.checkpoints.made import FILES, state, upload
from tests.overwatch_rl.servers import FaultProxy, s3_url

ROOT = Path(__file__).parents[3]
SOON = Patience(deadline_s=1.0, request_s=10.0, first_s=0.01, most_s=0.05)
"""Of a store that does not answer."""
ALIVE = Patience(request_s=10.0, first_s=0.01, most_s=0.05)
LONG = Patience(deadline_s=60.0, request_s=0.3, first_s=0.01, most_s=0.05)


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """Where nothing is yet."""
    if request.param == "memory":
        return f"memory://{uuid4().hex}"
    return s3_url(request.getfixturevalue("moto_address"), uuid4().hex)


@pytest.fixture
def store(url: str) -> Store:
    """The store there, claimed."""
    made = open_store(url, ALIVE)
    assert claim(made) == 1
    return made


def damaged(store: Store, key: str) -> None:
    """Flip a bit in the middle of a file."""
    held = store.get(key)
    assert held is not None
    at = len(held.data) // 2
    store.put(key, held.data[:at] + bytes([held.data[at] ^ 1]) + held.data[at + 1 :])


def one_of(url: str, version: str) -> str:
    """The URL of one checkpoint."""
    place, _, query = url.partition("?")
    return f"{place}/{version}" + (f"?{query}" if query else "")


@pytest.mark.parametrize("zstd", [0, 3])
def test_what_was_uploaded_is_read(url: str, store: Store, zstd: int) -> None:
    """Through the place and through its own URL; what came with it is removed with the checkpoint."""
    saved = upload(store, state(3, score=0.5), zstd=zstd)

    for place in (url, one_of(url, "001-00000003")):
        found = find_checkpoint(place, patience=ALIVE)
        assert (found.where, found.state) == (saved.where, state(3, score=0.5))
        assert found.manifest == saved.manifest
        assert found.tensors(FILES[1])["b"].tolist() == [3.0] * 64
        assert found.tensors("none.safetensors") == {}
    assert saved.size == sum(one.size for one in store.list("001-00000003"))
    assert {entry.uri for entry in saved.manifest.files.values()} == {
        f"{saved.where}/{name}" for name in saved.manifest.files
    }
    path = found.path
    assert path.is_dir()
    del found
    assert not path.exists()


def test_latest_and_best_are_named(store: Store) -> None:
    """`latest` with the lineage that may write, `best` with its return's kind; newest and best stay."""
    for updates, score in enumerate([0.1, 0.9, None, 0.3, 0.2], start=1):
        upload(store, state(updates, score=score), keep=2)

    latest, _ = read_pointer(store, "latest")
    best, _ = read_pointer(store, "best")
    assert latest is not None
    assert (latest.name, latest.lineage) == ("001-00000005", 1)
    assert best is not None
    assert (best.name, best.by) == ("001-00000002", "training")
    assert sorted(versions_in(store)) == [Version(1, 2), Version(1, 4), Version(1, 5)]
    evaluation = Evaluation(lineage=1, number=4, mean_return=-1.0, episodes=4)
    store.put("evaluations/001-00000004.json", sealed(evaluation))
    for updates in (6, 7, 8):
        assert upload(store, state(updates, score=9.0), keep=1).manifest.best_by == "evaluation"
    best, _ = read_pointer(store, "best")
    assert best is not None
    assert (best.name, best.by) == ("001-00000004", "evaluation")
    assert sorted(versions_in(store)) == [Version(1, 4), Version(1, 8)]


@pytest.mark.parametrize("name", [*FILES, "state.json", "MANIFEST.json"])
def test_a_damaged_file_is_found_and_the_one_before_is_taken(url: str, store: Store, name: str) -> None:
    """Also one that is missing; the error of a single one names the file."""
    upload(store, state(1))
    upload(store, state(2))
    damaged(store, f"001-00000002/{name}")

    assert find_checkpoint(url, patience=ALIVE).state.updates == 1
    with pytest.raises(ValueError, match=rf"001-00000002/{name}.*(damaged|another hash)"):
        find_checkpoint(one_of(url, "001-00000002"), patience=ALIVE)
    store.delete(f"001-00000001/{name}")
    with pytest.raises(ValueError, match="001-0000000"):
        find_checkpoint(url, patience=ALIVE)


@pytest.mark.parametrize("hint", [b"", b"{}", b"001-00000009", None])
def test_latest_is_a_hint(url: str, store: Store, hint: bytes | None) -> None:
    """Damaged or absent: the newest that verifies is taken, and the next save makes it right."""
    upload(store, state(1))
    if hint is None:
        store.delete("latest")
    else:
        store.put("latest", hint)

    assert find_checkpoint(url, patience=ALIVE).state.updates == 1
    upload(store, state(2))
    latest, _ = read_pointer(store, "latest")
    assert latest is not None
    assert latest.name == "001-00000002"


def test_who_goes_on_keeps_the_one_before_out(url: str, store: Store) -> None:
    """A learner that outlived its successor's start can write no more, and the error names who can."""
    upload(store, state(5))
    assert claim(store) == 2
    with pytest.raises(
        FencedError, match=r"written by another training, of lineage 2; this one is of lineage 1"
    ):
        upload(store, state(6))
    assert find_checkpoint(url, patience=ALIVE).state.updates == 5
    upload(store, state(6, lineage=2))
    assert find_checkpoint(url, patience=ALIVE).state.lineage == 2
    assert claim(store) == 3


def test_of_several_that_go_on_each_has_a_lineage_of_its_own(store: Store) -> None:
    """However they meet; the greatest writes."""
    together, found = threading.Barrier(4), []

    def go() -> None:
        together.wait()
        found.append(claim(store))

    threads = [threading.Thread(target=go) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == [2, 3, 4, 5]


def test_what_was_not_finished_goes_with_a_later_save(store: Store) -> None:
    """A folder without a manifest of an older version; never one that is being written by a later lineage."""
    store.put("001-00000002/policy.safetensors", b"half")
    store.put("002-00000009/policy.safetensors", b"under way")
    upload(store, state(3))

    assert sorted(versions_in(store)) == [Version(1, 3), Version(2, 9)]


def test_what_was_saved_now_stays_whatever_a_listing_shows(store: Store) -> None:
    """A name that is newer is no reason to remove it."""
    upload(store, state(3))
    store.put("009-00000009/MANIFEST.json", b"damaged")
    prune(store, Retention(keep=1), Version(1, 3))
    assert Version(1, 3) in versions_in(store)


def test_a_place_without_any_or_without_a_server_is_named(url: str, moto_address: str) -> None:
    """With what to do."""
    with pytest.raises(ValueError, match="holds no checkpoint"):
        find_checkpoint(url, patience=ALIVE)
    with FaultProxy(moto_address, rate=1.0, kinds=("error",)) as proxy:
        gone = s3_url(proxy.address, "x")
        with pytest.raises(ValueError, match="checkpoints in s3://bucket/x cannot be read: cannot list"):
            find_checkpoint(gone, patience=SOON)


def test_a_manifest_cannot_name_files_elsewhere(url: str, store: Store, tmp_path: Path) -> None:
    """Whoever sealed it."""
    saved = upload(store, state(1))
    files = saved.manifest.files | {"../../x": saved.manifest.files["state.json"]}
    import msgspec

    forged = msgspec.structs.replace(saved.manifest, files=files).sealed()
    store.put("001-00000001/MANIFEST.json", msgspec.json.encode(forged))
    with pytest.raises(ValueError, match="names a file outside of the checkpoint"):
        find_checkpoint(url, patience=ALIVE)


def test_urls_name_all_or_one() -> None:
    """With their options."""
    assert place_and_version("s3://b/x/001-00000004?region=r") == ("s3://b/x?region=r", Version(1, 4))
    assert place_and_version("s3://b/x?region=r") == ("s3://b/x?region=r", None)


def saves_under_faults(moto_address: str, saves: int, seed: int) -> tuple[int, FaultProxy]:
    """So many saves while a third of all requests fail; how many were written.

    After each, written or not, the newest that a reader without faults finds verifies, and it is not older
    than the newest that was reported as written.
    """
    prefix = uuid4().hex
    clean = s3_url(moto_address, prefix)
    draw, written, newest = random.Random(seed), 0, 0  # noqa: S311 a test
    with FaultProxy(moto_address, rate=0.3, seed=seed) as proxy:
        patience = Patience(deadline_s=draw.uniform(5.0, 10.0), request_s=0.3, first_s=0.01, most_s=0.05)
        store = open_store(s3_url(proxy.address, prefix), patience)
        assert claim(store) == 1
        for updates in range(1, saves + 1):
            try:
                upload(store, state(updates, score=float(updates % 7)), keep=2)
            except OSError:
                pass
            else:
                written, newest = written + 1, updates
            if newest:
                found = find_checkpoint(clean, patience=LONG)
                assert newest <= found.state.updates <= updates
                assert found.tensors(FILES[0])["a"].tolist() == [float(found.state.updates)] * 64
        assert find_checkpoint(s3_url(proxy.address, prefix), patience=LONG).state.updates >= newest
        assert len(versions_in(open_store(clean, ALIVE))) <= 4
        return written, proxy


def test_saves_survive_a_store_that_fails_a_third_of_the_requests(moto_address: str) -> None:
    """Errors, lost replies, time-outs, flipped bytes: what is reported verifies."""
    written, proxy = saves_under_faults(moto_address, 6, seed=1)

    assert written == 6
    assert sum(proxy.met.values()) - proxy.met["none"] > 40


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_three_hundred_saves_survive_faults(moto_address: str, seed: int) -> None:
    """In three runs of a hundred."""
    written, proxy = saves_under_faults(moto_address, 100, seed=seed)

    assert written == 100
    assert sum(proxy.met.values()) - proxy.met["none"] > 1000
    print(dict(proxy.met))


def killed(url: str, stride: int) -> tuple[int, int, int]:
    """Saves, killed at every so many lines: kills, and how often the one before or the new one was found."""
    script = Path(__file__).with_name("killed_remote.py")
    # What a reader fetched, it leaves behind as it ends.
    with tempfile.TemporaryDirectory() as own:
        ran = subprocess.run(
            [sys.executable, str(script), url, str(stride)], check=False, capture_output=True, text=True,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": own},
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    kills, before, after = (int(word) for word in ran.stdout.split())
    return kills, before, after


def test_killed_at_lines_of_a_save_what_is_found_verifies(moto_address: str) -> None:
    """The one before or the new one, at a few lines."""
    kills, before, after = killed(s3_url(moto_address, uuid4().hex), 97)

    assert kills >= 5
    assert before > 0
    assert after > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_at_any_line_of_a_save_what_is_found_verifies(moto_address: str) -> None:
    """At every third, hundreds of them."""
    kills, before, after = killed(s3_url(moto_address, uuid4().hex), 3)

    assert kills >= 200
    assert before > 0
    assert after > 0

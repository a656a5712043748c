"""Versions are published beside the training, by one process that alone signs."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.publisher import LOCK, Published, Publisher
from tests.overwatch_rl.servers import FaultProxy, RedisServer, s3_url
from tests.overwatch_rl.weights.made import LONG_S, Run, is_whole, tensors, waited

Make = Callable[..., Publisher]


@pytest.fixture
def publisher(run: Run) -> Iterator[Make]:
    """Publishers of the run, closed in the end."""
    made: list[Publisher] = []

    def make(**changes: Any) -> Publisher:
        more = {name: changes.pop(name) for name in ("clock", "busy_s") if name in changes}
        made.append(Publisher(run.publishing(**changes), **({"busy_s": 0.0} | more)))
        return made[-1]

    yield make
    for one in made:
        try:
            one.close()
        except OSError:
            continue  # It was closed already.


def give(publisher: Publisher, version: Version) -> None:
    """Hand over what a version holds."""
    publisher.publish(version, tensors(version))


def pid_of(publisher: Publisher) -> int:
    """Of its process."""
    assert publisher._sender is not None
    return publisher._sender.pid


def stand_still(pid: int) -> None:
    """Return when a child has stopped."""
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])


def test_a_version_is_there_when_it_is_reported(publisher: Make, run: Run) -> None:
    """With size and duration; an actor takes it by the key of the run's record; version 0 is the first."""
    made = publisher(config_hash="abc")
    assert (made.known, made.public) == (None, run.signer.public)
    give(made, Version(1, 0))
    done = waited(made)
    found = run.subscriber().poll()

    assert found is not None
    assert is_whole(found)
    assert found.manifest.config_hash == "abc"
    assert (done.version, done.status, done.error) == (Version(1, 0), "ok", None)
    assert (
        done.size_bytes
        == found.manifest.bytes
        == (run.folder / "weights/001-00000000.safetensors").stat().st_size
    )
    assert done.duration_s > 0
    assert made.finished() == []


def test_while_two_are_under_way_others_are_skipped_and_reported(publisher: Make, run: Run) -> None:
    """Training goes on; the last one is published whatever is under way."""
    made = publisher()
    give(made, Version(1, 0))
    waited(made)
    stand_still(pid_of(made))
    for number in (1, 2, 3):
        give(made, Version(1, number))
    assert made.finished() == [Published(version=Version(1, 3), status="busy")]
    os.kill(pid_of(made), signal.SIGCONT)
    done = made.close(Version(1, 4), tensors(Version(1, 4)))

    assert [(one.version.number, one.status) for one in done] == [(1, "ok"), (2, "ok"), (4, "ok")]
    found = run.subscriber().poll()
    assert found is not None
    assert found.version == Version(1, 4)


def test_a_process_that_was_killed_costs_what_it_had(publisher: Make, run: Run) -> None:
    """Each is reported, the next version starts another process."""
    made = publisher()
    give(made, Version(1, 0))
    waited(made)
    stand_still(pid_of(made))
    give(made, Version(1, 1))
    give(made, Version(1, 2))
    os.kill(pid_of(made), signal.SIGKILL)
    lost = made.finished(LONG_S)

    assert [(one.version.number, one.status) for one in lost] == [(1, "error"), (2, "error")]
    assert "ended; the next version starts another" in str(lost[0].error)
    found = run.subscriber().poll()
    assert found is not None
    assert found.version == Version(1, 0)
    give(made, Version(1, 3))
    assert waited(made).status == "ok"


def test_versions_are_throttled_but_for_the_last(publisher: Make) -> None:
    """By the learner's clock; a version that was left out is never given out later."""
    now = 0.0
    made = publisher(every_s=10.0, clock=lambda: now)
    give(made, Version(1, 0))
    assert waited(made).status == "ok"
    now = 9.9
    give(made, Version(1, 1))
    assert made.finished() == [Published(version=Version(1, 1), status="throttled")]
    now = 10.0
    give(made, Version(1, 2))
    assert waited(made).status == "ok"
    now = 10.1
    (done,) = made.close(Version(1, 3), tensors(Version(1, 3)))

    assert (done.version, done.status) == (Version(1, 3), "ok")


def test_a_version_is_never_used_twice(publisher: Make) -> None:
    """Nor one that is less than another; what was throttled or lost counts as used."""
    made = publisher(every_s=3600.0)
    give(made, Version(1, 4))
    give(made, Version(1, 5))
    for wrong in (Version(1, 5), Version(1, 4), Version(0, 9)):
        with pytest.raises(
            ValueError, match=rf"{wrong} is not greater than 001-00000005; use a number above"
        ):
            give(made, wrong)


def test_after_a_resume_numbers_begin_above_what_was_published(publisher: Make, run: Run) -> None:
    """The version key is read before the first; what is not greater is refused."""
    first = publisher()
    give(first, Version(1, 7))
    first.close()
    resumed = publisher()

    assert resumed.known == Version(1, 7)
    with pytest.raises(ValueError, match="is not greater than 001-00000007"):
        give(resumed, Version(1, 6))
    after = Version(1, 5).resumed(resumed.known)
    give(resumed, after)
    assert waited(resumed).status == "ok"
    found = run.subscriber().poll()
    assert found is not None
    assert found.version == after == Version(2, 8)


def test_a_run_has_one_publisher(publisher: Make, run: Run) -> None:
    """The process of a killed learner holds the lock too, until it is done."""
    made = publisher()
    with pytest.raises(ValueError, match=r"another process publishes the weights of this run in .*; end"):
        publisher()
    give(made, Version(1, 0))
    made.close()
    with (run.folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_made_is_named(publisher: Make, tmp_path: Path) -> None:
    """Before any training."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"below cannot be written: .*; name another --out folder"):
        publisher(folder=tmp_path / "file" / "below")


def test_a_version_key_of_something_else_is_not_overwritten(publisher: Make, run: Run) -> None:
    """At the start, when a person can still look."""
    run.name(b"something else")
    with pytest.raises(
        ValueError, match="the version key of run-1 is not readable: its manifest cannot be read"
    ):
        publisher()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keep": 0}, "keep is 0; use 1 or more"),
        ({"every_s": -1.0}, "every_s is -1.0; use 0 or more"),
        ({"every_s": float("nan")}, "every_s is nan; use 0 or more"),
    ],
)
def test_a_setting_that_cannot_be_is_named(run: Run, changes: dict[str, Any], words: str) -> None:
    """With what may be."""
    with pytest.raises(ValueError, match=words):
        run.publishing(**changes)


def test_the_newest_artifacts_stay(publisher: Make, run: Run) -> None:
    """Also of those that an earlier publisher left; nothing half written lies there."""
    for number in range(4):
        run.put(Version(1, number))
    made = publisher(keep=2)
    for number in (4, 5):
        give(made, Version(2, number))
        waited(made)

    names = sorted(one.name for one in (run.folder / "weights").iterdir())
    assert names == ["002-00000004.safetensors", "002-00000005.safetensors", "current.json"]


def test_what_fails_is_tried_again_until_something_newer_waits(
    publisher: Make, run: Run, tmp_path: Path, moto_address: str
) -> None:
    """The store is gone, then back: the newest of what was handed over is published, actors kept theirs."""
    with FaultProxy(moto_address, rate=0.0, kinds=["error"]) as proxy:
        far = Run(run.folder, artifacts=s3_url(proxy.address, tmp_path.name))
        actor = far.subscriber()
        made = publisher(artifacts=far.place.artifacts)
        give(made, Version(1, 0))
        assert waited(made).status == "ok"
        assert actor.poll() is not None
        proxy.rate = 1.0
        give(made, Version(1, 1))
        while not proxy.met["error"]:
            assert made.finished() == []
        give(made, Version(1, 2))
        old = waited(made)
        assert (old.version, old.status) == (Version(1, 1), "superseded")
        assert "503" in str(old.error)
        assert actor.poll() is None
        assert actor.acting is not None
        assert actor.acting.version == Version(1, 0)
        proxy.rate = 0.0
        assert waited(made).status == "ok"
        assert actor.first(LONG_S).version == Version(1, 2)
        assert not is_listed(far, Version(1, 1))


def is_listed(run: Run, version: Version) -> bool:
    """Whether an artifact lies in the store."""
    return f"weights/{version}.safetensors" in {entry.key for entry in run.store.list("weights")}


def test_what_fails_for_long_is_given_up_and_reported(publisher: Make, redis_server: RedisServer) -> None:
    """The last version that was published stays; the next one is tried anew."""
    made = publisher(key_url=redis_server.url, patience_s=0.2)
    give(made, Version(1, 0))
    assert waited(made).status == "ok"
    redis_server.kill()
    give(made, Version(1, 1))
    lost = waited(made)
    assert (lost.version, lost.status) == (Version(1, 1), "error")
    assert "Redis does not answer as it should" in str(lost.error)
    redis_server.start()
    give(made, Version(1, 2))
    assert waited(made).status == "ok"


def test_a_version_key_that_cannot_be_read_ends_the_start(publisher: Make, redis_server: RedisServer) -> None:
    """Numbers could be used twice otherwise."""
    redis_server.kill()
    with pytest.raises(OSError, match="Redis does not answer as it should"):
        publisher(key_url=redis_server.url)


def test_errors_of_a_store_spoil_no_version(
    publisher: Make, run: Run, tmp_path: Path, moto_address: str
) -> None:
    """A third of the requests fails: what is reported is there, and an actor only goes forward."""
    kinds = ["error", "error after", "drop", "corrupt reply", "corrupt request", "slow"]
    with FaultProxy(moto_address, rate=0.0, seed=3, kinds=kinds) as proxy:
        far = Run(run.folder, artifacts=s3_url(proxy.address, tmp_path.name))
        direct = Run(run.folder, artifacts=s3_url(moto_address, tmp_path.name))
        made = publisher(artifacts=far.place.artifacts)
        actor, newest = far.subscriber(), Version(0, 0)
        proxy.rate = 0.3
        for number in range(40):
            give(made, Version(1, number))
            done = waited(made)
            assert done.status == "ok", done
            check = direct.subscriber().poll()
            assert check is not None
            assert check.version == done.version
            assert is_whole(check)
            found = actor.poll()
            if found is not None:
                assert found.version > newest
                assert is_whole(found)
                newest = found.version
        proxy.rate = 0.0
        give(made, Version(1, 40))
        waited(made)
        assert actor.first(LONG_S).version == Version(1, 40)
    assert sum(count for kind, count in proxy.met.items() if kind != "none") >= 20


def test_an_address_with_a_password_is_seen_by_nobody(publisher: Make, redis_server: RedisServer) -> None:
    """The arguments of a process are public on its machine."""
    url = redis_server.url.replace("redis://", "redis://:a-password@")
    made = publisher(key_url=url, patience_s=0.1)
    give(made, Version(1, 0))
    words = psutil.Process(pid_of(made)).cmdline()

    assert "a-password" not in " ".join(words)
    assert waited(made).version == Version(1, 0)


def test_a_killed_learner_leaves_nothing_undone(run: Run) -> None:
    """Its process publishes what it got, then ends and lets go of the lock."""
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from overwatch_rl.artifacts.versions import Version\n"
        "from tests.overwatch_rl.weights.made import Run, tensors\n"
        "from overwatch_rl.weights.publisher import Publisher\n"
        "made = Publisher(Run(Path(sys.argv[1])).publishing())\n"
        "[made.publish(Version(1, n), tensors(Version(1, n))) for n in (0, 1)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-c", program, str(run.folder)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    ran = subprocess.run(words, check=False, env=env, stderr=subprocess.DEVNULL)
    assert ran.returncode == -signal.SIGKILL
    resumed = Publisher(run.publishing(), busy_s=LONG_S)

    assert resumed.known == Version(1, 1)
    resumed.close()


def test_the_process_never_imports_torch() -> None:
    """It would take a second and 200 MB."""
    program = "import overwatch_rl.weights.writer, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_tensors_of_the_next_update_do_not_reach_the_version(publisher: Make, run: Run) -> None:
    """It is copied when it is handed over."""
    made = publisher()
    give(made, Version(1, 0))
    waited(made)
    stand_still(pid_of(made))
    held = tensors(Version(1, 1))
    made.publish(Version(1, 1), held)
    for tensor in held.values():
        tensor.copy_(torch.full_like(tensor, -1.0))
    os.kill(pid_of(made), signal.SIGCONT)
    waited(made)

    found = run.subscriber().poll()
    assert found is not None
    assert is_whole(found)


def test_waiting_for_nothing_returns_at_once(publisher: Make) -> None:
    """Before the first version, and when all is reported."""
    made = publisher()
    began = time.monotonic()
    assert made.finished(LONG_S) == []
    give(made, Version(1, 0))
    waited(made)
    assert made.finished(LONG_S) == []
    assert time.monotonic() - began < LONG_S

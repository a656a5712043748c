"""The queue on disk: restarts, cuts, damage, kills, full and failing disks, the cap."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from overwatch.journal import Folder, FolderBusyError, Log, LogVersionError
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Batch, Decision
from overwatch_rl.rollouts.operations import Operation, Snapshot
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import Level, Store, StoreClosedError, StoreLimits
from tests.overwatch.journal.faults import Fault, FaultyFiles
from tests.overwatch_rl.rollouts.driven import Driven, check
from tests.overwatch_rl.rollouts.keeping import MANY, SMALL, A, Keeping, logged, payload_of

ONE_FILE = replace(SMALL, segment_bytes=256 << 10)


def chances(seed: int) -> Random:
    """A test's own chance."""
    return Random(seed)  # noqa: S311


def newest(path: Path) -> Path:
    """The file that is written to."""
    return max(path.glob("rollouts-*"))


def played(path: Path, steps: int, seed: int, limits: StoreLimits = SMALL) -> Snapshot:
    """A life that ends well, and the state that it leaves."""
    life = Keeping(path, limits)
    life.play(life.begin(), steps, chances(seed))
    life.close()
    return logged(life.state)


@pytest.mark.parametrize("seed", range(3))
def test_the_next_life_begins_where_the_last_one_ended(tmp_path: Path, seed: int) -> None:
    """State and payloads are equal over many files, life after life."""
    life = Keeping(tmp_path / "s")
    envs = life.begin()
    for turn in range(4):
        life.play(envs, 150, chances(seed * 10 + turn))
        life.close()
        before, payloads = logged(life.state), life.store.payloads
        life = Keeping(tmp_path / "s")
        assert logged(life.state) == before
        assert life.store.payloads == payloads == {item: payload_of(item) for item in life.state.items}
        assert life.store.held_bytes == sum(map(len, payloads.values()))
        assert life.store.recovery.damaged == 0
        assert life.store.recovery.lost == ()
        check(life.state)
    life.close()


class Noting(Keeping):
    """Waits for each entry, and notes the state at each end of the newest file, by file."""

    noted: dict[str, list[tuple[int, Snapshot]]]

    def do(self, decision: Decision[A]) -> A:
        """Apply a decision, and wait until it is safe."""
        answer = super().do(decision)
        self.wait_all()
        part = self.store._log.parts[-1]
        self.noted.setdefault(part.name, []).append((part.end, logged(self.state)))
        return answer


@pytest.mark.parametrize("limits", [SMALL, ONE_FILE])
def test_a_file_cut_anywhere_loses_only_what_was_cut(tmp_path: Path, limits: StoreLimits) -> None:
    """Cut at each record's end, and at bytes between: the state is that of the last whole entry."""
    life = Noting(tmp_path / "s", limits)
    life.noted = {}
    life.play(life.begin(), 90, chances(7))
    life.close()
    file = newest(tmp_path / "s")
    noted = life.noted.pop(file.name)
    earlier = [state for states in life.noted.values() for _, state in states]
    ends = [end for end, _ in noted]
    size = file.stat().st_size
    cuts = sorted({*ends, *(end - 1 for end in ends), *chances(1).sample(range(ends[0], size), 20)})
    for cut in cuts:
        shutil.copytree(tmp_path / "s", tmp_path / "cut")
        os.truncate(tmp_path / "cut" / file.name, cut)
        place = bisect_right(ends, cut) - 1
        with_what = Keeping(tmp_path / "cut", limits)
        if place >= 0:
            assert logged(with_what.state) == noted[place][1]
        elif earlier:
            assert logged(with_what.state) in (earlier[-1], noted[0][1])
        assert with_what.store.payloads == {item: payload_of(item) for item in with_what.state.items}
        with_what.close()
        shutil.rmtree(tmp_path / "cut")
    assert len(cuts) > 20


def records(path: Path) -> Iterator[tuple[Path, int, int]]:
    """File, place and size of each record's payload."""
    log = Log(folder := Folder(path), "rollouts")
    sizes = [(record.sequence, len(record.payload), record.payload) for record in log.read()]
    log.close()
    folder.close()
    for file in sorted(path.glob("rollouts-*")):
        data = file.read_bytes()
        for _, size, payload in sizes:
            if (at := data.find(payload)) >= 0:
                yield file, at, size


def flip(file: Path, at: int) -> None:
    """Damage one byte."""
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 0x10]))


def test_a_damaged_record_costs_its_own_groups_only(tmp_path: Path) -> None:
    """Each of twenty requests' records in turn; the others' groups are served, and the sums hold."""
    life = Keeping(tmp_path / "s", ONE_FILE)
    env, _ = life.begin()
    sent = [life.send(env, 2) for _ in range(20)]
    life.close()
    places = list(records(tmp_path / "s"))[-20:]
    for (file, at, size), mine in zip(places, sent, strict=True):
        shutil.copytree(tmp_path / "s", tmp_path / "d")
        flip(tmp_path / "d" / file.name, at + size // 2)
        found = Keeping(tmp_path / "d", ONE_FILE)
        is_last = mine is sent[-1]
        assert found.store.recovery.damaged == (0 if is_last else 1)
        assert (found.store.recovery.torn_bytes > 0) == is_last
        others = {item for items in sent if items is not mine for item in items}
        assert set(found.state.items) == others
        check(found.state)
        found.close()
        shutil.rmtree(tmp_path / "d")


@pytest.mark.parametrize("limits", [SMALL, ONE_FILE])
def test_whatever_record_is_damaged_the_queue_goes_on(tmp_path: Path, limits: StoreLimits) -> None:
    """Registrations, leases, acknowledgements, snapshots: no damage of one record stops a recovery."""
    played(tmp_path / "s", 100, 3, limits)
    whole = Keeping(tmp_path / "s", limits)
    live = set(whole.state.items)
    whole.close()
    for file, at, size in records(tmp_path / "s"):
        shutil.copytree(tmp_path / "s", tmp_path / "d")
        flip(tmp_path / "d" / file.name, at + size // 2)
        found = Keeping(tmp_path / "d", limits)
        check(found.state)
        recovery = found.store.recovery
        assert recovery.damaged or recovery.lost or recovery.torn_bytes or live == set(found.state.items)
        assert len(live - set(found.state.items)) <= 3
        if found.state.envs and found.state.trainer is not None:
            found.play(sorted(found.state.envs) * 2, 20, chances(1))
        found.close()
        shutil.rmtree(tmp_path / "d")


def test_a_group_whose_bytes_are_lost_is_expired_and_counted(tmp_path: Path) -> None:
    """The state is whole by a later snapshot; what it has no bytes for is never served, and so once only."""
    life = Keeping(tmp_path / "s")
    env, _ = life.begin()
    first = life.send(env, 2)
    life.batch()
    while len(life.store._log.parts) < 2:
        life.send(env, 2)
        life.trained()
        life.wait_all()
    life.close()
    expected = set(life.state.items) - set(first)
    file, at, size = next(
        found
        for found in records(tmp_path / "s")
        if payload_of(first[0]) in found[0].read_bytes()[found[1] :][: found[2]]
    )
    flip(file, at + size // 2)
    life = Keeping(tmp_path / "s")
    assert life.store.recovery.lost == tuple(first)
    assert life.state.account.expired["lost"].groups == 2
    assert set(life.state.items) == expected
    check(life.state)
    life.close()
    life = Keeping(tmp_path / "s")
    assert life.store.recovery.lost == ()
    assert life.state.account.expired["lost"].groups == 2
    life.close()


_PLAY = """
import sys
from pathlib import Path
from random import Random
from tests.overwatch_rl.rollouts.keeping import Keeping
life = Keeping(Path(sys.argv[1]))
envs = life.begin()
chance = Random(int(sys.argv[2]))
while True:
    life.play(envs, 1, chance)
    life.wait_all()
    print(life.store.last_number, flush=True)
"""


def entries_of(seed: int, count: int) -> list[tuple[Operation, ...]]:
    """The first entries that a life with this seed submits."""

    class Listed(Keeping):
        """A queue of which only the operations are kept."""

        def __init__(self) -> None:
            Driven.__init__(self, MANY)

        def do(self, decision: Decision[A]) -> A:
            kept = tuple(operation for operation in decision.operations if queue.is_logged(operation))
            if kept:
                found.append(kept)
            return Driven.do(self, decision)

    found: list[tuple[Operation, ...]] = []
    life = Listed()
    envs, chance = life.begin(), chances(seed)
    while len(found) < count:
        life.play(envs, 1, chance)
    return found[:count]


def test_a_killed_process_loses_nothing_that_was_safe(tmp_path: Path) -> None:
    """Five times kill -9 while writing: the state is that of the first entries, the safe ones among them."""
    for seed in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", _PLAY, str(tmp_path / str(seed)), str(seed)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(50 + 40 * seed):
                safe = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().splitlines(keepends=True)
            safe = max([safe, *(int(line) for line in rest if line.endswith(b"\n"))])
        life = Keeping(tmp_path / str(seed))
        assert life.store.last_number >= safe
        expected = State(limits=life.state.limits)
        for entry in entries_of(seed, life.store.last_number):
            for operation in entry:
                queue.apply(expected, operation)
        assert logged(life.state) == logged(expected)
        assert life.store.payloads == {item: payload_of(item) for item in expected.items}
        life.close()


def until(look: Callable[[], bool]) -> None:
    """Wait for what the thread that writes does."""
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def refused(life: Keeping, env: int) -> None:
    """Send until the disk refuses, which is seen by the next one who asks."""
    while life.store.problem is None:
        life.send(env)
        until(lambda done=life.kept[-1]: done.done() or life.store.problem is not None)  # type: ignore[misc]
        if life.state.account.queued.sequences >= 8:
            life.trained()


@pytest.mark.parametrize("disk", ["tmpfs", "fault"])
def test_a_full_disk_takes_nothing_new_and_loses_nothing(tmp_path: Path, disk: str) -> None:
    """What was submitted waits in order until there is room; new groups are refused meanwhile."""
    place, fault = tmp_path / "disk", Fault()
    place.mkdir()
    if disk == "tmpfs":
        mounting = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place)]
        if subprocess.run(mounting, check=False, capture_output=True).returncode:
            pytest.skip("no tmpfs can be mounted here: it takes root and mount(8)")
    try:
        (place / "filler").write_bytes(bytes(128 << 10))
        life = Keeping(place / "s", ONE_FILE, lambda fd: FaultyFiles(fd, fault))
        env, _ = life.begin()
        life.wait_all()
        if disk == "fault":
            fault.room = 10_000
        refused(life, env)
        assert os.strerror(errno.ENOSPC) in (life.store.problem or "")
        assert not life.store.room(1)
        life.send(env)
        assert not life.kept[-1].done()
        (place / "filler").unlink()
        fault.room = None
        life.wait_all()
        before = logged(life.state)
        life.close()
        life = Keeping(place / "s", ONE_FILE)
        assert logged(life.state) == before
        assert life.store.room(1)
        life.close()
    finally:
        if disk == "tmpfs":
            subprocess.run(["umount", str(place)], check=True)


def test_a_store_closed_on_a_full_disk_reports_what_is_not_safe(tmp_path: Path) -> None:
    """The future fails, so that nothing lost is acknowledged."""
    fault = Fault()
    life = Keeping(tmp_path / "s", ONE_FILE, lambda fd: FaultyFiles(fd, fault))
    env, _ = life.begin()
    life.wait_all()
    before = logged(life.state)
    fault.room = 0
    life.send(env)
    life.close()
    with pytest.raises(StoreClosedError, match="No space left"):
        life.kept[-1].result(0)
    life = Keeping(tmp_path / "s", ONE_FILE)
    assert logged(life.state) == before
    life.close()


def test_what_a_failed_sync_left_in_doubt_is_written_again_and_counted_once(tmp_path: Path) -> None:
    """Whether the first copy survived or not, the state is the same."""
    fault = Fault()
    life = Keeping(tmp_path / "s", ONE_FILE, lambda fd: FaultyFiles(fd, fault))
    env, _ = life.begin()
    life.wait_all()
    fault.refused = {"sync"}
    life.send(env, 3)
    until(lambda: life.store.problem is not None)
    assert not life.kept[-1].done()
    fault.refused = set()
    life.wait_all()
    life.close()
    assert len(list((tmp_path / "s").glob("rollouts-*"))) == 2
    for kept in ("both", "second"):
        shutil.copytree(tmp_path / "s", tmp_path / kept)
    doubtful = min((tmp_path / "second").glob("rollouts-*"))
    *_, (_, at, _) = (found for found in records(tmp_path / "second") if found[0] == doubtful)
    os.truncate(doubtful, at - 10)
    for kept in ("both", "second"):
        found = Keeping(tmp_path / kept, ONE_FILE)
        assert logged(found.state) == logged(life.state)
        assert found.store.recovery.damaged == 0
        found.close()


def test_at_the_cap_new_groups_are_refused_and_room_comes_back(tmp_path: Path) -> None:
    """Nothing that was accepted goes; once groups are used, the dead part of the disk is given up."""
    limits = StoreLimits(held_bytes=64 << 10, disk_bytes=288 << 10, segment_bytes=32 << 10)
    life = Keeping(tmp_path / "s", limits)
    env, _ = life.begin()
    refusals = 0

    def is_held(size: int) -> bool:
        return life.store.held_bytes + size > limits.held_bytes

    for _ in range(6):
        while not is_held(size := len(payload_of(life.state.next_id))):
            if not life.store.room(size):
                refusals += 1
                until(partial(life.store.room, size))
            life.send(env)
        assert not life.store.room(size)
        assert life.store.payloads == {item: payload_of(item) for item in life.state.items}
        while isinstance(batch := life.batch(), Batch):
            life.do(queue.acknowledge(life.state, batch.lease, life.now))
        life.wait_all()
    assert refusals
    before = logged(life.state)
    life.close()
    life = Keeping(tmp_path / "s", limits)
    assert logged(life.state) == before
    assert life.store.disk_bytes < limits.disk_bytes + (16 << 10)
    life.close()


def test_a_group_that_outlives_its_file_is_copied_forward(tmp_path: Path) -> None:
    """A file of which less than a tenth lives goes, and its last groups are still there, once."""
    life = Keeping(tmp_path / "s")
    env, other = life.begin()
    (old,) = life.send(other, 1, size=3)
    life.wait_all()
    first = life.store._log.parts[0].name
    while (tmp_path / "s" / first).exists():
        life.send(env, 2)
        life.trained()
        life.wait_all()
        assert life.state.account.accepted.groups < 2_000
    life.close()
    assert old in life.state.items
    life = Keeping(tmp_path / "s")
    assert life.store.payloads[old] == payload_of(old)
    assert life.store.recovery.lost == ()
    life.close()


def test_fast_waits_for_no_disk_and_memory_has_none(tmp_path: Path) -> None:
    """`fast` survives the process; `memory` refuses only what it cannot hold."""
    fault = Fault(refused={"sync"})
    life = Keeping(tmp_path / "s", replace(SMALL, level=Level.FAST), lambda fd: FaultyFiles(fd, fault))
    env, _ = life.begin()
    life.send(env)
    life.wait_all()
    fault.refused = set()
    life.close()
    found = Keeping(tmp_path / "s", replace(SMALL, level=Level.FAST))
    assert logged(found.state) == logged(life.state)
    found.close()

    memory = Store(None, State(), StoreLimits(level=Level.MEMORY, held_bytes=100))
    assert memory.keep([]).done()
    assert memory.room(100)
    assert not memory.room(101)
    memory.close()


def test_one_process_has_a_folder(tmp_path: Path) -> None:
    """The second one is refused, with the process that has it; nothing is harmed."""
    life = Keeping(tmp_path / "s")
    with pytest.raises(FolderBusyError, match=f"in use by process {os.getpid()}"):
        Store(tmp_path / "s", State())
    life.close()


def test_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """A kind of record that is not known, or a newer layout of the file, is named with the folder."""
    played(tmp_path / "s", 20, 1)
    shutil.copytree(tmp_path / "s", tmp_path / "layout")
    folder = Folder(tmp_path / "s")
    log = Log(folder, "rollouts")
    log.append(9, 0, b"what only a newer version knows")
    log.close()
    folder.close()
    file = newest(tmp_path / "layout")
    file.rename(file.with_suffix(".ow2"))
    for name in ("s", "layout"):
        before = {file: file.read_bytes() for file in (tmp_path / name).glob("rollouts-*")}
        with pytest.raises(LogVersionError, match=f"{name}.* was written by a newer version"):
            Store(tmp_path / name, State())
        assert before == {file: file.read_bytes() for file in (tmp_path / name).glob("rollouts-*")}


def test_the_disk_must_hold_twice_what_is_held() -> None:
    """Else dead groups could fill it while those that live cannot make a batch."""
    with pytest.raises(ValueError, match="room for twice what is held and four segments"):
        StoreLimits(held_bytes=1 << 30, disk_bytes=2 << 30)

"""Limits and use of a control group, read from trees as kernels and containers show them."""

from pathlib import Path

import psutil
import pytest

from overwatch.cgroup import ControlGroup, CpuTime, Memory
from overwatch.collector.limits import available_bytes
from overwatch.sdk.exporter.host import Host

GIB = 1 << 30
V2 = "31 23 0:28 {within} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {within} /sys/fs/cgroup/{name} rw,relatime master:1 - cgroup cgroup rw,{controllers}"
NONE_V1 = 9223372036854771712


def tree(root: Path, groups: str, mounts: str, files: dict[str, object]) -> Path:
    """A root with what a process reads there; files are below `/sys/fs/cgroup`."""
    self = root / "proc/self"
    self.mkdir(parents=True)
    (self / "cgroup").write_text(groups)
    (self / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def v2(root: Path, files: dict[str, object], path: str = "/", within: str = "/") -> ControlGroup:
    """A group of v2."""
    return ControlGroup(tree(root, f"0::{path}\n", V2.format(within=within), files))


def test_the_group_of_a_container_in_its_own_namespace(tmp_path: Path) -> None:
    """Its path is `/`, and its files lie at the mount; file cache that can go is not in use."""
    group = v2(
        tmp_path,
        {
            "memory.max": 8 * GIB,
            "memory.current": 3 * GIB,
            "memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7",
            "cpu.max": "150000 100000",
            "cpu.stat": "usage_usec 2500000\nuser_usec 1",
            "cpuset.cpus.effective": "0-1,6",
        },
    )

    assert group.memory() == Memory(limit=8 * GIB, used=2 * GIB)
    assert group.cpu() == CpuTime(cores=1.5, used_s=2.5)
    assert group.cpus() == {0, 1, 6}


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("at", [0, 1])
def test_the_smallest_limit_of_all_ancestors_counts(tmp_path: Path, depth: int, at: int) -> None:
    """At any depth, with what is used where it is set; `max` is no limit."""
    names = [f"g{number}" for number in range(depth + 1)]
    folders = ["/".join(names[:length]) for length in range(1, depth + 2)]
    files: dict[str, object] = {}
    for place, folder in enumerate(folders):
        tight = place == at
        files[f"{folder}/memory.max"] = 2 * GIB if tight else "max" if place % 2 else 30 * GIB
        files[f"{folder}/memory.current"] = (9 - place) * 1000
        files[f"{folder}/cpu.max"] = "50000 100000" if tight else "max 100000"
        files[f"{folder}/cpu.stat"] = f"usage_usec {(9 - place) * 1_000_000}"
    group = v2(tmp_path, files, path=f"/{folders[-1]}")

    assert group.memory() == Memory(limit=2 * GIB, used=(9 - at) * 1000)
    assert group.cpu() == CpuTime(cores=0.5, used_s=9 - at)


@pytest.mark.parametrize("path", ["/../..", "/../other/deep", "/gone", "/gone (deleted)"])
def test_a_group_that_cannot_be_seen_is_held_to_what_can(tmp_path: Path, path: str) -> None:
    """Outside of the namespace, or removed: the limits at the mount hold for it in any case."""
    group = v2(tmp_path, {"memory.max": GIB, "memory.current": 5}, path=path)

    assert group.memory() == Memory(limit=GIB, used=5)


@pytest.mark.parametrize(
    ("path", "within", "folder"),
    [
        ("/docker/abc", "/docker/abc", "."),
        ("/docker/abc/inner", "/docker/abc", "inner"),
        ("/", "/docker/abc", "."),
        ("/kubepods.slice/pod1/c1", "/", "kubepods.slice/pod1/c1"),
        ("/with space", "/with\\040space", "."),
    ],
)
def test_a_mount_may_show_a_part_of_all_groups(tmp_path: Path, path: str, within: str, folder: str) -> None:
    """What is mounted is taken off the path of the group."""
    files: dict[str, object] = {f"{folder}/memory.max": GIB, f"{folder}/memory.current": 7}

    assert v2(tmp_path, files, path, within).memory() == Memory(limit=GIB, used=7)


def test_no_limit_is_none(tmp_path: Path) -> None:
    """`max` everywhere, and no files at all."""
    files: dict[str, object] = {"a/memory.max": "max", "a/memory.current": 5, "a/cpu.max": "max 100000"}
    group = v2(tmp_path / "max", files, "/a")

    assert (group.memory(), group.cpu(), group.cpus()) == (None, None, None)
    bare = ControlGroup(tmp_path / "nothing")
    assert (bare.memory(), bare.cpu(), bare.cpus()) == (None, None, None)


def v1(root: Path, files: dict[str, object], path: str = "/job/step", within: str = "/") -> ControlGroup:
    """A group of v1, each controller mounted for itself, beside an empty v2."""
    mounted = {"memory": "memory", "cpu,cpuacct": "cpu,cpuacct", "cpuset": "cpuset"}
    mounts = [V1.format(within=within, name=name, controllers=word) for name, word in mounted.items()]
    mounts.append("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw")
    groups = f"9:name=systemd:/x\n4:memory:{path}\n3:cpuset:{path}\n2:cpu,cpuacct:{path}\n0::/\n"
    return ControlGroup(tree(root, groups, "\n".join(mounts), files))


def test_the_first_version_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    """The smallest limit of all ancestors, as in the second."""
    group = v1(
        tmp_path,
        {
            "memory/job/memory.limit_in_bytes": 4 * GIB,
            "memory/job/memory.usage_in_bytes": 3 * GIB,
            "memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
            "memory/job/step/memory.limit_in_bytes": NONE_V1,
            "memory/job/step/memory.usage_in_bytes": 2 * GIB,
            "cpu,cpuacct/job/cpu.cfs_quota_us": 200_000,
            "cpu,cpuacct/job/cpu.cfs_period_us": 100_000,
            "cpu,cpuacct/job/cpuacct.usage": 3_000_000_000,
            "cpu,cpuacct/job/step/cpu.cfs_quota_us": -1,
            "cpu,cpuacct/job/step/cpu.cfs_period_us": 100_000,
            "cpuset/job/step/cpuset.cpus": "4,5",
        },
    )

    assert group.memory() == Memory(limit=4 * GIB, used=2 * GIB)
    assert group.cpu() == CpuTime(cores=2.0, used_s=3.0)
    assert group.cpus() == {4, 5}


def test_a_limit_above_what_can_be_seen_is_known_in_the_first_version(tmp_path: Path) -> None:
    """The kernel gives a group of v1 the smallest limit that holds for it."""
    group = v1(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": NONE_V1,
            "memory/memory.usage_in_bytes": 5,
            "memory/memory.stat": f"hierarchical_memory_limit {GIB}",
        },
        path="/docker/abc",
        within="/docker/abc",
    )

    assert group.memory() == Memory(limit=GIB, used=5)


def test_time_of_a_controller_that_is_mounted_elsewhere(tmp_path: Path) -> None:
    """`cpu` and `cpuacct` may be two mounts."""
    mounts = "\n".join(V1.format(within="/", name=name, controllers=name) for name in ("cpu", "cpuacct"))
    files: dict[str, object] = {
        "cpu/a/cpu.cfs_quota_us": 100_000,
        "cpu/a/cpu.cfs_period_us": 100_000,
        "cpuacct/a/cpuacct.usage": 5_000_000_000,
    }
    group = ControlGroup(tree(tmp_path, "2:cpuacct:/a\n1:cpu:/a\n", mounts, files))

    assert group.cpu() == CpuTime(cores=1.0, used_s=5.0)


@pytest.mark.parametrize("junk", ["", "N/A", "\x00\xff", "100000", "0 0", "max", "-5 100"])
def test_files_that_hold_no_number_limit_nothing(tmp_path: Path, junk: str) -> None:
    """Nothing is raised, and nothing made up."""
    names = ("cpu.max", "cpu.stat", "memory.stat", "cpuset.cpus.effective")
    group = v2(tmp_path, {**dict.fromkeys(names, junk), "memory.max": GIB})

    assert group.cpu() is None
    assert group.memory() == Memory(limit=GIB, used=None)


def test_the_host_of_a_container_is_its_control_group(tmp_path: Path) -> None:
    """Memory and CPU by its limits, by the second reading; a limit above the machine's own is none."""
    used_us = tmp_path / "sys/fs/cgroup/cpu.stat"
    v2(
        tmp_path,
        {
            "memory.max": GIB, "memory.current": 900 << 20, "memory.stat": f"inactive_file {400 << 20}",
            "cpu.max": "1000 100000", "cpu.stat": "usage_usec 1000",
        },
    )  # fmt: skip
    host = Host(tmp_path)
    first = host.read()
    used_us.write_text("usage_usec 900000000\n")
    second = host.read()

    assert first["system.memory.limit"] == GIB
    assert first["system.memory.usage"] == 500 << 20
    assert "system.cpu.utilization" not in first
    assert second["system.cpu.utilization"] == 1.0
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{1 << 50}\n")
    assert host.read()["system.memory.limit"] == psutil.virtual_memory().total


def test_the_collector_is_held_to_the_same_limit(tmp_path: Path) -> None:
    """However deep its group lies; a quarter is left to the file cache, which counts too."""
    v2(tmp_path, {"a/b/memory.max": "max", "a/memory.max": 64 << 20}, path="/a/b")

    assert available_bytes(tmp_path) == 48 << 20


def test_a_reading_that_fails_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory cannot be read, which is logged once; processors, disks and network can."""

    def refuse() -> None:
        raise OSError("denied")

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    host = Host()
    host.read()
    values = host.read()

    assert "system.memory.usage" not in values
    assert caplog.messages == ["the host's memory cannot be read: OSError: denied"]
    assert {"overwatch.host.cpu.busiest", "overwatch.host.network"} <= values.keys()


def test_kills_for_want_of_memory_are_counted_by_all_groups(tmp_path: Path) -> None:
    """As a service manager makes the group anew, that of the process alone may have counted none."""
    second = v2(
        tmp_path / "2",
        {"a/b/memory.events": "low 9\noom 7\noom_kill 0", "a/memory.events": "oom_kill 4"},
        path="/a/b",
    )
    first = v1(tmp_path / "1", {"memory/job/step/memory.oom_control": "under_oom 0\noom_kill 2"})
    nothing = v2(tmp_path / "0", {"memory.max": GIB})

    assert (second.oom_kills(), first.oom_kills(), nothing.oom_kills()) == (4, 2, 0)

"""What `overwatch doctor` finds of this machine: ports, disks, GPUs, clocks; and what a finding is.

Rules: nothing is changed, nothing is left behind. Listeners are opened in the collector's own order and stay
open until the last one was looked at, so that the port named is the port that `collect` would take. Nothing
is wrong with a machine that has no GPU; one that has some which cannot be read has a reason: the sampler's
own source is asked, in a process of its own, since a broken driver may hang it.
"""

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec
import psutil

from overwatch import discovery
from overwatch.collector.budget import look, summary
from overwatch.collector.exporters.otlp_file import OtlpFileConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.guard import Listener
from overwatch.collector.net import AddressError, holder, listen, parse
from overwatch.collector.settings import CollectorConfig, opened, written
from overwatch.platform import PROC, SHARED_MEMORY

LEAST_BYTES: Final = 256 << 20
"""Bytes below which nothing can be recorded for long."""
RING_BYTES: Final = 64 << 20
"""Bytes that the rings of one trainer and its spares take at most, in /dev/shm."""
_MIB: Final = 1 << 20
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p"})
TIMEOUT_S: Final = 10.0
_DRIVER: Final = PROC / "driver/nvidia/version"
_CONTROL: Final = Path("/dev/nvidiactl")
_QUERY: Final = """
import json, os, sys
from pathlib import Path
from overwatch.sdk.exporter.gpus import Local, with_files
source = Local(os.getpid(), with_files(*[Path(word) for word in sys.argv[1:]]))
gpus = source.open()
every = frozenset(gpu.uuid for gpu in gpus)
for look in source.questions(every):
    look.query(every)
notes = source.unread.take()
print(json.dumps([[f"{gpu.model or 'GPU'} {gpu.uuid}" for gpu in gpus],
                  [[note.text, note.trouble] for note in notes]]))
sys.stdout.flush()
os._exit(0)
"""
FIRST_NS: Final = 1_735_689_600_000_000_000
"""The first of January 2025: earlier stamps are of a machine whose clock was never set."""
LOOK_S: Final = 0.2
MOST_APART_S: Final = 0.05
_UNSYNCHRONISED: Final = 5
_BUFFER: Final = 512
_MAX_ERROR_AT: Final = 24

Clock = Callable[[], int]


class State(Enum):
    """How a thing is; the value is the word that is shown."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as it could, or not for long."""
    FAILURE = "failure"
    """It does not work."""


class Verdict(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    state: State
    found: str
    """What is so, in one sentence."""
    fix: str = ""
    """What to do; never empty where something is wrong."""


def ok(found: str) -> Verdict:
    """All is well."""
    return Verdict(State.OK, found)


def warning(found: str, fix: str) -> Verdict:
    """It works, but not well."""
    return Verdict(State.WARNING, found, fix)


def failure(found: str, fix: str) -> Verdict:
    """It does not work."""
    return Verdict(State.FAILURE, found, fix)


def ports(config: CollectorConfig, fixed: frozenset[str] = frozenset()) -> Iterator[Verdict]:
    """One verdict for each listener that this configuration opens.

    A `fixed` endpoint's port was named by a person, and may not be another one.
    """
    running = discovery.read()
    found, own = list[Verdict](), dict[int, str]()
    with ExitStack() as held:
        for listener in opened(config):
            found.append(_port(listener, held, own, None if running is None else running.pid, fixed))
    yield from found


def _port(
    listener: Listener, held: ExitStack, own: dict[int, str], running: int | None, fixed: frozenset[str]
) -> Verdict:
    """What becomes of one listener; a port that `collect` would take stays in `held` and in `own`."""
    path, may_move = listener.path, listener.endpoint not in fixed
    try:
        wanted = parse(listener.endpoint)
        got = listen(wanted)
    except (AddressError, OSError) as error:
        return failure(f"{path}: {error}", f"give {path} an address of this machine")
    if got.moved is None:
        held.callback(got.sock.close)
        own[got.address.port] = path
        return ok(f"{wanted} is free ({path})")
    by = f"{own[wanted.port]} of this configuration" if wanted.port in own else holder(wanted.port)
    if running is not None and f"(pid {running})" in by:
        got.sock.close()
        return ok(f"{wanted} is served by the running collector, pid {running} ({path})")
    if not may_move:
        got.sock.close()
        return failure(
            f"{wanted} is held by {by} ({path})",
            f"stop it, or set {path} to another port; `collect` does not start",
        )
    held.callback(got.sock.close)
    own[got.address.port] = path
    return warning(
        f"{wanted} is held by {by} ({path})",
        f"stop it, or set {path}; `collect` would take {got.address} and announce it",
    )


def disks(config: CollectorConfig, spool: Path, shared: Path = SHARED_MEMORY) -> Iterator[Verdict]:
    """One verdict for each place that is written to."""
    yield from _storage(config)
    yield from _room("journal", config.data_folder, LEAST_BYTES, is_log=True)
    for name, files in config.every(OtlpFileConfig).items():
        yield from _room(
            "recordings" if name == "otlp_file" else f"recordings of {name}", files.path, LEAST_BYTES
        )
    yield from _room("snapshots", config.one(SnapshotsConfig).path.parent, LEAST_BYTES)
    yield from _room("spool", spool, LEAST_BYTES)
    if shared.is_dir():
        yield from _room("rings", shared, RING_BYTES, least=RING_BYTES)


def _storage(config: CollectorConfig) -> Iterator[Verdict]:
    """The disk budget: what there is of it, and whether the volume has room for the rest."""
    files = written(config)
    try:
        usage = look(files)
        found = f"storage: {summary(files, usage, time.time())}"
    except OSError as error:
        yield failure(f"storage: {error.filename}: {error.strerror}", "make it readable")
        return
    if usage.room >= usage.most:
        yield ok(found)
        return
    yield warning(
        f"{found}; others leave room for {usage.room / _MIB:,.0f} MiB on the volume",
        "make room, or set extensions.file_storage.budget_mib to less, so that what is oldest goes",
    )


def _room(
    what: str, folder: Path, wanted: int, *, least: int = LEAST_BYTES, is_log: bool = False
) -> Iterator[Verdict]:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield failure(f"{what}: {there} is not a folder", f"remove it, or put {what} elsewhere")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield failure(f"{what}: {there} may not be written to", f"chown it, or put {what} elsewhere")
        return
    try:
        usage, state = shutil.disk_usage(there), os.statvfs(there)
    except OSError as error:
        yield failure(f"{what}: {there}: {error.strerror}", f"put {what} elsewhere")
        return
    free = f"{usage.free / _MIB:,.0f} MiB free at {folder}"
    if usage.free < least:
        yield failure(f"{what}: only {free}", f"make room: {least // _MIB} MiB are the least")
    elif state.f_files and not state.f_favail:
        yield failure(f"{what}: no inode is free at {folder}", "delete small files there")
    elif usage.free < wanted:
        yield warning(
            f"{what}: {free}, and may grow to {wanted // _MIB:,} MiB",
            "make room, or lower its limit; a full disk makes senders wait, nothing acknowledged is lost",
        )
    elif is_log and _kind(there) in _NETWORK:
        yield warning(
            f"{what}: {folder} is on {_kind(there)}, where a lock and a sync may not hold",
            "set OVERWATCH_DATA_DIR to a disk of this machine",
        )
    else:
        yield ok(f"{what}: {free}")


def _kind(folder: Path) -> str:
    """Type of the file system that a folder is on."""
    resolved = str(folder.resolve())
    mounts = [
        mount for mount in psutil.disk_partitions(all=True)
        if resolved == mount.mountpoint or resolved.startswith(mount.mountpoint.rstrip("/") + "/")
    ]  # fmt: skip
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def gpus(driver: Path = _DRIVER, control: Path = _CONTROL) -> Iterator[Verdict]:
    """What the sampler of a trainer would find."""
    if control.exists() and not os.access(control, os.R_OK | os.W_OK):
        yield failure(
            f"{control} may not be read and written by this user",
            "add the user to the device's group, or start the container with its GPUs",
        )
        return
    command = [sys.executable, "-c", _QUERY, str(driver), str(control)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        yield failure(
            f"no driver's answer in {TIMEOUT_S:.0f} s", "look at dmesg for Xid errors; reset the GPU"
        )
        return
    if answer.returncode:
        why = (answer.stderr.strip().splitlines() or [f"status {answer.returncode}"])[-1]
        yield failure(f"a driver ends what asks it: {why}", "reinstall the driver; try nvidia-smi")
        return
    found, notes = json.loads(answer.stdout)
    yield from _verdicts(found, notes)


def _verdicts(found: list[str], notes: list[tuple[str, bool]]) -> Iterator[Verdict]:
    for name in found:
        yield ok(name)
    for text, trouble in notes:
        if not trouble:
            if not found:
                yield ok(f"{text}; GPU rows stay absent")
            continue
        found_so, _, fix = text.partition("; ")
        make = warning if found or "pip install" in fix else failure
        yield make(found_so, fix or "look whether nvidia-smi shows it")
    if not found and not notes:
        yield warning("the driver has no GPU", "set CUDA_VISIBLE_DEVICES, or give the container its GPUs")


def clocks(wall: Clock = time.time_ns, steady: Clock = time.monotonic_ns) -> Iterator[Verdict]:
    """Looks at both for a fifth of a second."""
    begin, since = wall(), steady()
    if begin < FIRST_NS:
        yield warning("the wall clock is before 2025", "set it, e.g. timedatectl set-ntp true")
    time.sleep(LOOK_S)
    apart_s = abs((wall() - begin) - (steady() - since)) / 1e9
    if apart_s > MOST_APART_S:
        yield warning(
            f"the wall clock moved {apart_s:.3f} s against the monotonic one within {LOOK_S} s",
            "something sets the clock; let chrony or systemd-timesyncd slew it",
        )
    else:
        yield ok("wall clock and monotonic clock run together")
    yield from _kernel()


def _kernel() -> Iterator[Verdict]:
    """What the kernel reports of NTP; nothing where it does not."""
    try:
        query = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return
    buffer = ctypes.create_string_buffer(_BUFFER)
    state = query(buffer)
    if state < 0:
        return
    (error_us,) = struct.unpack_from("@l", buffer, _MAX_ERROR_AT)
    if state == _UNSYNCHRONISED:
        yield warning(
            "the kernel reports that this clock is not synchronised",
            "start chrony or systemd-timesyncd; ages of other machines' data are skewed until then",
        )
    else:
        yield ok(f"the clock is synchronised, within {error_us / 1000:.0f} ms")

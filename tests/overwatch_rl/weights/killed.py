"""Run as a program: publishes into a folder, killed at each line of the writer in turn; prints how often.

Without torch, so that a child is made in no time.
"""

import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from overwatch.objects import backends, store
from overwatch_rl.artifacts.signing import Verifier, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.handover.receiver import FIRST, START, Head, Piece, SharedBlock
from overwatch_rl.weights import channels, writer
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.manifest import Accepted, check, check_artifact, decoded

folder = Path(sys.argv[1])
signer = make_key(folder / "signing.key")
accepted = Accepted(run_id="run-1", verifier=Verifier(signer.public))
place = Place(url=str(folder), run_id="run-1")
target = writer.Target(
    run_id="run-1",
    artifacts=str(folder),
    key_url=str(folder),
    signing_key=str(folder / "signing.key"),
    config_hash="",
    keep=2,
    patience_s=1.0,
)
backends.sync = backends.sync_folder = lambda _: (
    None
)  # A kill is no power loss: the system keeps what it has.
traced = {module.__file__ for module in (writer, channels, store, backends)}


def publish(number: int) -> None:
    """As the process does it, with one tensor that holds the number."""
    note = writer.Note(target=target, version=Version(1, number), made_at_ns=time.time_ns(), since_ns=0)
    pieces = {"w": Piece(dtype="int64", shape=(4,), offset=FIRST, size=32)}
    head = msgspec.json.encode(Head(note=msgspec.Raw(msgspec.json.encode(note)), pieces=pieces))
    memory = mmap.mmap(-1, 1 << 16)
    memory[FIRST : FIRST + 32] = struct.pack("<4q", *[number] * 4)
    memory[FIRST + 64 : FIRST + 64 + len(head)] = head
    START.pack_into(memory, 0, FIRST + 64, len(head))
    block = SharedBlock(0, memory)
    done = writer.Writing(target).publish(block, note, lambda _: False)
    assert done.status == "ok", done


def found() -> int:
    """What an actor would take: its manifest and its artifact are whole and of one version."""
    channel = open_channel(place)
    text = channel.newest()
    assert text is not None
    manifest = decoded(text)
    check(manifest, accepted)
    artifact = channel.artifact(manifest.version)
    check_artifact(manifest, artifact)
    assert struct.unpack("<4q", artifact[-32:]) == (manifest.version.number,) * 4
    return manifest.version.number


def killed_at(line: int, number: int) -> bool:
    """Publish in a child that kills itself before a line; whether it came that far."""
    child = os.fork()
    if child == 0:
        left = line

        def count(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in traced:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return count

        sys.settrace(count)
        publish(number)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


publish(1)
newest, kills = 1, 0
while killed_at(kills, newest + 1):
    kills += 1
    now = found()
    assert now in (newest, newest + 1), (kills, now, newest)
    newest += 2  # The number that was killed is not used again, whether actors saw it or not.
    publish(newest)
    assert found() == newest
print(kills)

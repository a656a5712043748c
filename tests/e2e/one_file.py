"""A file system of one file, in memory, whose writes take as long as a number in another file states.

Run as `python one_file.py PLACE BYTES CONTROL` by a user that may mount: the file is at PLACE, a file that is
there; CONTROL holds a double, the seconds of each write and of each flush, which may be infinite and holds at
once when it changes. It prints `mounted`. One request is served after the other, so that what is
read waits for what is written, as at a disk that has more to do than it can. Speaks the kernel's FUSE
protocol itself (linux/fuse.h, 7.31), for no library of it is everywhere.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
import time
from pathlib import Path

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 17, 18, 20, 25, 26, 36, 38, 42
HEAD, ANSWER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
PLACE = struct.Struct("<QQI")
"""The beginning of a read and of a write: which open file, where, how many bytes."""
WRITE_HEAD = 40
MOST = 128 << 10
"""Bytes of one write."""
BIG_WRITES = 1 << 5
ATTRIBUTES = struct.Struct("<QII6Q10I")
REGULAR = 0o100600


class Disk:
    """The file, and how slow it is."""

    def __init__(self, size: int, control: Path) -> None:
        self._memory = mmap.mmap(-1, size)
        self._size = size
        self._control = control.open("rb", buffering=0)

    def answer(self, opcode: int, body: bytes) -> bytes | int | None:
        """What a request is answered with: bytes, an error's number, or nothing at all."""
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            return None
        if opcode == INIT:
            major, minor, ahead, _ = struct.unpack_from("<4I", body)
            return struct.pack("<4IHHIIHH8I", major, min(minor, 31), ahead, BIG_WRITES, 0, 0, MOST, 1,
                               MOST // mmap.PAGESIZE, 0, *[0] * 8)  # fmt: skip
        if opcode in (GETATTR, SETATTR):
            return ATTRIBUTES.pack(3600, 0, 0, 1, self._size, self._size // 512, 0, 0, 0,
                                   0, 0, 0, REGULAR, 1, 0, 0, 0, mmap.PAGESIZE, 0)  # fmt: skip
        if opcode == OPEN:
            return bytes(16)
        if opcode == READ:
            _, offset, size = PLACE.unpack_from(body)
            return self._memory[offset : offset + size]
        if opcode in (WRITE, FSYNC):
            self._take_its_time()
            return self._write(body) if opcode == WRITE else b""
        return b"" if opcode in (FLUSH, RELEASE, DESTROY) else errno.ENOSYS

    def _write(self, body: bytes) -> bytes:
        _, offset, size = PLACE.unpack_from(body)
        self._memory[offset : offset + size] = body[WRITE_HEAD : WRITE_HEAD + size]
        return struct.pack("<II", size, 0)

    def _take_its_time(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < struct.unpack("<d", os.pread(self._control.fileno(), 8, 0))[0]:
            time.sleep(0.005)


def main(place: str, size: int, control: Path) -> None:
    """Mount, then serve until it is unmounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode={REGULAR:o},user_id=0,group_id=0".encode()
    if libc.mount(b"one_file", place.encode(), b"fuse", 6, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    disk = Disk(size, control)
    while True:
        try:
            request = os.read(device, MOST + (64 << 10))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue
            raise
        _, opcode, unique, *_ = HEAD.unpack_from(request)
        answer = disk.answer(opcode, request[HEAD.size :])
        if answer is None:
            continue
        number, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(device, ANSWER.pack(ANSWER.size + len(body), number, unique) + body)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

"""Servers that outlive the command that started them: who they are, whether they live, and ending them.

Rules: a server is known by its pid and the moment it began, so that nothing else is ever ended in its place;
what is not ours is not touched. Must not know what the servers do.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
import psutil

from overwatch import discovery
from overwatch.cli.stack.writing import StackError
from overwatch.delivery.connection import http_request
from overwatch.file_lock import try_lock

READY_S: Final = 30.0
END_S: Final = 15.0
POLL_S: Final = 0.1
TAIL_BYTES: Final = 2000


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was started."""

    pid: int
    began: float
    """When its process began, Unix time, as the system tells it."""
    port: int
    log: str


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of the stack, by the name of their part."""

    servers: dict[str, Server] = {}


def read_servers(folder: Path) -> dict[str, Server]:
    """Those that were started; none where nothing says so. Raises `StackError`."""
    path = folder / "servers.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Servers).servers
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise StackError(
            f"{path} cannot be read ({error}); remove it when no server of the stack runs"
        ) from error


def write_servers(folder: Path, servers: Mapping[str, Server]) -> None:
    """Remember them."""
    discovery.write_private(folder / "servers.json", msgspec.json.encode(Servers(servers=dict(servers))))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else starts or ends servers meanwhile; raises `StackError` while somebody does."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("ab")
    except OSError as error:
        raise StackError(f"{folder} cannot be used: {error.strerror or error}") from error
    with lock:
        if not try_lock(lock.fileno()):
            raise StackError("another `overwatch stack` is at work; wait for it")
        yield


def process_of(server: Server) -> psutil.Process | None:
    """Its process while it lives; `None` when it ended, whoever has its pid now."""
    try:
        process = psutil.Process(server.pid)
        lives = process.create_time() == server.began and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if lives else None


def start(command: list[str], folder: Path, port: int, environment: Mapping[str, str]) -> Server:
    """Start a server in a session of its own; raises `StackError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / "server.log"
    try:
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        began = psutil.Process(process.pid).create_time()
    except (OSError, psutil.Error) as error:
        raise StackError(f"{command[0]} cannot be started: {error}") from error
    return Server(pid=process.pid, began=began, port=port, log=str(log))


def wait_ready(server: Server, url: str) -> bool:
    """Whether it answers within half a minute, and lives."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if is_ready(url):
            return process_of(server) is not None
        if process_of(server) is None:
            return False
        time.sleep(POLL_S)
    return False


def is_ready(url: str) -> bool:
    """Whether an address answers with 200."""
    try:
        return http_request(url, timeout_s=2, env={}).status == HTTPStatus.OK
    except OSError:
        return False


def reread(server: Server) -> None:
    """Have it read its configuration again."""
    process = process_of(server)
    if process is not None:
        process.send_signal(signal.SIGHUP)


def end(server: Server) -> bool:
    """Ask it to end, and after the time end it; whether it lived."""
    process = process_of(server)
    if process is None:
        return False
    try:
        process.terminate()
        process.wait(END_S)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(END_S)
    except psutil.NoSuchProcess:
        return True
    return True


def tail(server: Server) -> str:
    """The end of its log."""
    try:
        return Path(server.log).read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
    except OSError as error:
        return f"(its log cannot be read: {error})"

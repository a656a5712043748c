"""What `overwatch stack up`, `down` and `status` do: servers that outlive the command that started them.

Rules: a server is known by its pid and the moment it began, so that nothing else is ever ended in its place;
what is not ours is not touched. `up` may be repeated at any time: what runs goes on with fresh configuration,
what died starts again. Ports are looked at before anything starts. `down` ends what this stack started and
nothing else.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import click
import msgspec
import psutil

from overwatch import discovery
from overwatch.cli.processes import tail
from overwatch.cli.stack_files import (
    GRAFANA,
    LOOPBACK,
    PARTS,
    PROMETHEUS,
    SCRAPE_TOKEN,
    Part,
    Spot,
    StackError,
    Wanted,
    write_all,
)
from overwatch.collector.net import holder
from overwatch.delivery.connection import http_request
from overwatch.file_lock import try_lock

READY_S: Final = 30.0
END_S: Final = 15.0
POLL_S: Final = 0.1


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was started."""

    pid: int
    began: float
    """When its process began, Unix time, as the system has it."""
    port: int
    log: str


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of the stack, by the name of their part."""

    servers: dict[str, Server] = {}


def read_servers(folder: Path) -> dict[str, Server]:
    """Those that were started; none where none is recorded. Raises `StackError`."""
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
    """No other command starts or ends servers meanwhile; raises `StackError` while one does."""
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
    """Its process while it lives; `None` when it ended, whatever has its pid now."""
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
    """Request its end, and after the time end it; whether it lived."""
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


def up(folder: Path, wanted: Wanted) -> None:
    """Start what does not run; raises `StackError` when that fails."""
    programs = _programs()
    with alone(folder):
        known = read_servers(folder)
        lives = {name: server for name, server in known.items() if process_of(server) is not None}
        ports = {name: port for name, port in wanted.ports.items() if name in programs}
        ports |= {name: server.port for name, server in lives.items()}
        wanted = replace(wanted, ports=ports)
        for part in PARTS:
            if part.name in programs and part.name not in lives:
                _need_port(part, ports[part.name])
        write_all(folder, wanted)
        for part in PARTS:
            if part.name in lives:
                _go_on(part, lives[part.name])
            elif part.name in programs:
                lives[part.name] = _start(folder, part, programs[part.name], ports[part.name], lives)
    _print_secrets(folder, wanted, lives)


def down(folder: Path) -> None:
    """End all that was started; data and secrets stay."""
    with alone(folder):
        known = read_servers(folder)
        for part in reversed(PARTS):
            server = known.pop(part.name, None)
            if server is not None:
                click.echo(f"{part.name} {'ended' if end(server) else 'had ended before'}")
                write_servers(folder, known)
    click.echo(f"data and secrets stay in {folder}")


def status(folder: Path) -> bool:
    """Print how each server is; whether all that was started is ready."""
    known = read_servers(folder)
    fine = bool(known)
    for part in PARTS:
        server = known.get(part.name)
        if server is None:
            click.echo(f"{part.name:13} {_absent(part)}")
            continue
        line, ready = _condition(part, server)
        fine = fine and ready
        click.echo(f"{part.name:13} {line}")
    return fine


def _programs() -> dict[str, str]:
    """The program of each part that is installed; raises `StackError` without Prometheus."""
    found = {part.name: path for part in PARTS if (path := part.find())}
    if PROMETHEUS.name not in found:
        raise StackError(f"prometheus is not installed, and the others need it: {PROMETHEUS.get}")
    for part in PARTS:
        if part.name not in found:
            click.echo(f"{part.name} is not installed, so it is left out: {part.get}")
    return found


def _go_on(part: Part, server: Server) -> None:
    if part.rereads:
        reread(server)
    click.echo(f"{part.name} runs already at {_url(server.port)} (pid {server.pid})")


def _start(folder: Path, part: Part, program: str, port: int, lives: Mapping[str, Server]) -> Server:
    own = folder / part.name
    spot = Spot(binary=program, folder=own, port=port)
    server = start(part.command(spot), own, port, part.environment(spot))
    write_servers(folder, {**lives, part.name: server})
    if not wait_ready(server, _url(port) + part.ready):
        click.echo("\n".join(tail(Path(server.log))))
        why = "is not ready after" if process_of(server) else "ended within"
        raise StackError(f"{part.name} {why} {READY_S:.0f} s; its log is {server.log}")
    click.echo(f"{part.name} is up at {_url(port)} (pid {server.pid})")
    return server


def _print_secrets(folder: Path, wanted: Wanted, lives: Mapping[str, Server]) -> None:
    click.echo(f"scraping {wanted.runs} and {wanted.collector}")
    token = folder / PROMETHEUS.name / SCRAPE_TOKEN
    if wanted.token is None:
        click.echo(
            "  the collector's pages are open on this machine; to ask for a token:\n"
            f"  overwatch collect --set 'service.security.tokens.read={{filename: {token}}}'"
        )
    if GRAFANA.name in lives:
        click.echo(f"grafana: user admin, password in {folder / GRAFANA.name / 'admin_password'}")


def _need_port(part: Part, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise StackError(
                f"port {port} for {part.name} is held by {holder(port)}; "
                f"end that, or choose another with --{part.name}-port"
            ) from error


def _condition(part: Part, server: Server) -> tuple[str, bool]:
    if process_of(server) is None:
        return f"died; `overwatch stack up` starts it again; log {server.log}", False
    if not is_ready(_url(server.port) + part.ready):
        return f"runs (pid {server.pid}), but does not answer at {_url(server.port)}", False
    return f"up at {_url(server.port)} (pid {server.pid})", True


def _absent(part: Part) -> str:
    return "not started" if part.find() else f"not installed: {part.get}"


def _url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"

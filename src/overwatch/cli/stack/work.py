"""What `overwatch stack up`, `down` and `status` do.

Rules: `up` may be said again at any time: what runs goes on with fresh configuration, what died starts again.
Ports are looked at before anything starts. `down` ends what this stack started and nothing else.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from overwatch.cli.stack.parts import GRAFANA, LOOPBACK, PARTS, PROMETHEUS, Part, Spot
from overwatch.cli.stack.processes import (
    READY_S,
    Server,
    alone,
    end,
    is_ready,
    process_of,
    read_servers,
    reread,
    start,
    tail,
    wait_ready,
    write_servers,
)
from overwatch.cli.stack.writing import SCRAPE_TOKEN, StackError, Wanted, write_all
from overwatch.collector.net import holder

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack: its folder and who listens to what it says."""

    folder: Path
    say: Say

    def up(self, wanted: Wanted) -> None:
        """Start what does not run; raises `StackError` when that fails."""
        programs = self._programs()
        with alone(self.folder):
            known = read_servers(self.folder)
            lives = {name: server for name, server in known.items() if process_of(server) is not None}
            ports = {name: port for name, port in wanted.ports.items() if name in programs}
            ports |= {name: server.port for name, server in lives.items()}
            wanted = replace(wanted, ports=ports)
            for part in PARTS:
                if part.name in programs and part.name not in lives:
                    _need_port(part, ports[part.name])
            write_all(self.folder, wanted)
            for part in PARTS:
                if part.name in lives:
                    self._go_on(part, lives[part.name])
                elif part.name in programs:
                    lives[part.name] = self._start(part, programs[part.name], ports[part.name], lives)
        self._tell_secrets(wanted, lives)

    def down(self) -> None:
        """End all that was started; data and secrets stay."""
        with alone(self.folder):
            known = read_servers(self.folder)
            for part in reversed(PARTS):
                server = known.pop(part.name, None)
                if server is not None:
                    self.say(f"{part.name} {'ended' if end(server) else 'had ended before'}")
                    write_servers(self.folder, known)
        self.say(f"data and secrets stay in {self.folder}")

    def status(self) -> bool:
        """Say how each server is; whether all that was started is ready."""
        known = read_servers(self.folder)
        fine = bool(known)
        for part in PARTS:
            server = known.get(part.name)
            if server is None:
                self.say(f"{part.name:13} {_absent(part)}")
                continue
            line, ready = _condition(part, server)
            fine = fine and ready
            self.say(f"{part.name:13} {line}")
        return fine

    def _programs(self) -> dict[str, str]:
        """The program of each part that is installed; raises `StackError` without Prometheus."""
        found = {part.name: path for part in PARTS if (path := part.find())}
        if PROMETHEUS.name not in found:
            raise StackError(f"prometheus is not installed, and the others need it: {PROMETHEUS.get}")
        for part in PARTS:
            if part.name not in found:
                self.say(f"{part.name} is not installed, so it is left out: {part.get}")
        return found

    def _go_on(self, part: Part, server: Server) -> None:
        if part.rereads:
            reread(server)
        self.say(f"{part.name} runs already at {_url(server.port)} (pid {server.pid})")

    def _start(self, part: Part, program: str, port: int, lives: Mapping[str, Server]) -> Server:
        folder = self.folder / part.name
        spot = Spot(binary=program, folder=folder, port=port)
        server = start(part.command(spot), folder, port, part.environment(spot))
        write_servers(self.folder, {**lives, part.name: server})
        if not wait_ready(server, _url(port) + part.ready):
            self.say(tail(server))
            why = "is not ready after" if process_of(server) else "ended within"
            raise StackError(f"{part.name} {why} {READY_S:.0f} s; its log is {server.log}")
        self.say(f"{part.name} is up at {_url(port)} (pid {server.pid})")
        return server

    def _tell_secrets(self, wanted: Wanted, lives: Mapping[str, Server]) -> None:
        self.say(f"scraping {wanted.runs} and {wanted.collector}")
        token = self.folder / PROMETHEUS.name / SCRAPE_TOKEN
        if wanted.token is None:
            self.say(
                "  the collector's pages are open on this machine; to ask for a token:\n"
                f"  overwatch collect --set 'service.security.tokens.read={{filename: {token}}}'"
            )
        if GRAFANA.name in lives:
            self.say(f"grafana: user admin, password in {self.folder / GRAFANA.name / 'admin_password'}")


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

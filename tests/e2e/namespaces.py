"""Hosts of a test's own on one machine: a network namespace each, all at a bridge in another.

Rules: nothing outside of the namespaces is changed, and no namespace has a way out of them; all go with the
block. A test is skipped where none can be made.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

_NETWORK = "10.231.0"


def _ip(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *words], check=False, capture_output=True)


def _must(*words: str) -> None:
    done = _ip(*words)
    assert done.returncode == 0, (words, done.stderr.decode())


@dataclass(frozen=True, slots=True)
class Host:
    """One host: a namespace with an address."""

    namespace: str
    address: str
    _switch: str
    _port: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a command on it."""
        return ("ip", "netns", "exec", self.namespace)

    def cut(self) -> None:
        """Take its cable out: what is under way is lost without a word."""
        _must("-n", self._switch, "link", "set", self._port, "down")

    def join(self) -> None:
        """Put it in again."""
        _must("-n", self._switch, "link", "set", self._port, "up")


@contextmanager
def network(names: Sequence[str]) -> Iterator[list[Host]]:
    """Hosts of these names, each of at most eight characters, that reach one another."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the program ip: apt-get install iproute2")
    switch = f"ow{os.getpid()}"
    made = _ip("netns", "add", switch)
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.decode().strip()}")
    hosts: list[Host] = []
    try:
        bridged = _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        if bridged.returncode:
            pytest.skip(f"no bridge can be made here: {bridged.stderr.decode().strip()}")
        _must("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names, 1):
            host = Host(f"{switch}-{name}", f"{_NETWORK}.{number}", switch, f"to-{name}")
            _must("netns", "add", host.namespace)
            hosts.append(host)
            _connect(host)
        yield hosts
    finally:
        for host in hosts:
            _ip("netns", "del", host.namespace)
        _ip("netns", "del", switch)


def _connect(host: Host) -> None:
    switch, port = host._switch, host._port
    _must("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    _must("-n", switch, "link", "set", port, "master", "bridge")
    _must("-n", switch, "link", "set", port, "up")
    _must("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
    _must("-n", host.namespace, "link", "set", "eth0", "up")
    _must("-n", host.namespace, "link", "set", "lo", "up")

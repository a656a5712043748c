"""What the collector's ingest is compared with: other receivers of OTLP/HTTP that this machine has.

Only those that can take the same requests are measured; for the others the bench prints why they are not.
None of them does what the collector does: what each leaves out is part of its name.
"""

import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.ports import free_port

SINK = """
import os, sys
from aiohttp import web
file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if sys.argv[2] else None
async def take(request):
    body = await request.read()
    if file is not None:
        os.write(file, body)
        os.fdatasync(file)
    return web.Response(content_type="application/x-protobuf")
app = web.Application(client_max_size=1 << 22)
app.router.add_post("/v1/logs", take)
try:
    import uvloop; uvloop.install()
except ImportError:
    pass
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
"""
MISSING = (
    "otelcol: not available here (no release can be fetched); published: 95,000 to 116,000 logs/s a core",
    "prometheus, victoria-metrics: not available here (Debian's 2.42 and 1.79 take no OTLP, and never logs)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Something that takes requests."""

    url: str
    process: psutil.Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparator:
    """Another receiver."""

    name: str
    command: tuple[str, ...]
    """The words `{port}`, `{address}` and `{file}` are filled in."""

    @contextmanager
    def serving(self, folder: Path) -> Iterator[Server]:
        """The receiver on a free port of the first core."""
        port = free_port()
        places = {"{port}": str(port), "{address}": f"127.0.0.1:{port}", "{file}": str(folder / "bodies")}
        command = [places.get(word, word) for word in self.command]
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:1])
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        finally:
            os.sched_setaffinity(0, cores[1:] or cores)
        try:
            _wait_for(port, process)
            yield Server(url=f"http://127.0.0.1:{port}", process=psutil.Process(process.pid))
        finally:
            process.kill()
            process.wait()
            os.sched_setaffinity(0, cores)


def found() -> tuple[list[Comparator], list[str]]:
    """Those that can be measured here, and a line for each that cannot."""
    sink = (sys.executable, "-c", SINK, "{port}")
    comparators = [
        Comparator(name="bare sink, discards", command=(*sink, "")),
        Comparator(name="bare sink, syncs", command=(*sink, "{file}")),
    ]
    missing = list(MISSING)
    agent = _rotel()
    if agent is None:
        missing.append("rotel: not available here; set OVERWATCH_BENCH_PYTHON to an interpreter that has it")
    else:
        ports = ("--otlp-http-endpoint", "{address}", "--otlp-grpc-endpoint", "127.0.0.1:0")
        command = (agent, "start", "--exporter", "blackhole", *ports)
        comparators.append(Comparator(name="rotel, discards", command=command))
    return comparators, missing


def _rotel() -> str | None:
    """The program that the package `rotel` brings; it is in no environment of ours."""
    python = os.environ.get("OVERWATCH_BENCH_PYTHON", sys.executable)
    code = "import pathlib, rotel; print(pathlib.Path(rotel.__file__).with_name('rotel-agent'))"
    requested = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return requested.stdout.strip() if requested.returncode == 0 else shutil.which("rotel-agent")


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.connect()
        except OSError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError(f"{process.args!r} does not answer")

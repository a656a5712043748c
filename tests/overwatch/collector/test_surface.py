"""What the collector exposes: every route of every listener is listed here, and none reaches a trainer."""

import ast
import gzip
import http.client
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

import overwatch
from overwatch.collector.signals import WIRES
from overwatch.journal import Signal
from overwatch.otlp import wire
from tests.overwatch.collector.running import eventually, reported, run_started, running
from tests.overwatch.collector.running import http as query
from tests.overwatch.collector.test_service import ready, spawn

ROUTES = {
    "otlp_http": {("*", "/{path}")},
    "metrics": {("GET", "/metrics"), ("HEAD", "/metrics")},
    "telemetry": {("GET", "/metrics"), ("HEAD", "/metrics")},
    "health_check": {(verb, path) for verb in ("GET", "HEAD") for path in ("/", "/live", "/ready")},
    "view": {
        (method, f"/api/v1/{name}")
        for method in ("GET", "HEAD")
        for name in ("runs", "snapshot", "stream", "history", "heat", "timeline", "me")
    }
    | {(method, path) for method in ("GET", "HEAD") for path in ("/", "/web/{name}")}
    | {("POST", "/api/v1/findings/{finding}/ack"), ("POST", "/api/v1/login"), ("DELETE", "/api/v1/login")},
}
"""What may be asked for: telemetry comes in, snapshots and numbers go out. A route that is added is listed
here by whoever answers the question what it could do to a training run."""

CALLERS = {
    "overwatch.collector.exporters.webhook",
}
"""Modules of the collector that open connections by themselves, to addresses of the configuration only."""

OUTWARD = {
    "urlopen",
    "build_opener",
    "ClientSession",
    "insecure_channel",
    "secure_channel",
    "create_connection",
    "OtlpTransport",
    "http_request",
}

NAMES = [
    "../../escape",
    "..%2f..%2fescape",
    "..%252fescape",
    "/etc/overwatch-escape",
    "a/b/c",
    "..",
    ".",
    "~root",
    "nul\x00byte",
    "line\nend",
    "\\\\host\\share",
    "CON",
    "x" * wire.LONGEST_ID,
    "\u202e\u2066run",
    "$(touch escape)",
    "lock",
    "index.jsonl",
]


def test_every_route_is_known_and_guarded(tmp_path: Path) -> None:
    """The routes are those of the table, and before all routes of each application stands the guard."""
    with running(tmp_path) as service:
        ports = {urlsplit(url).port: name for name, url in service.context.urls.items()}
        found = {}
        for runner, server in service.context.loop._hosted.items():
            name = ports[server.sockets[0].getsockname()[1]]
            app = runner.app
            found[name] = {
                (route.method, route.resource.canonical) for route in app.router.routes() if route.resource
            }
            assert "Guard.protect.<locals>.stand" in {one.__qualname__ for one in app.middlewares}, name
            assert app._subapps == []

    assert found == ROUTES


def test_the_otlp_doors_take_three_signals_and_nothing_else(tmp_path: Path) -> None:
    """Three paths over HTTP and three methods over gRPC; reflection and administration there are none."""
    with running(tmp_path) as service:
        base = service.endpoints.otlp_http
        paths = [
            "/v1/logs",
            "/v1/metrics",
            "/v1/traces",
            "/",
            "/v1",
            "/v1/profiles",
            "/debug/pprof",
            "/admin",
        ]
        headers = {"Content_Type": "application/x-protobuf"}
        answers = {path: query(f"{base}{path}", b"", "POST", **headers).status for path in paths}
        methods = [f"/{wire.service}/Export" for wire in WIRES.values()] + [
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.health.v1.Health/Check",
            f"/{WIRES[Signal.LOGS].service}/Import",
        ]
        codes = {method: call(str(service.endpoints.otlp_grpc), method) for method in methods}

    assert [path for path, status in answers.items() if status == 200] == paths[:3]
    assert {status for path, status in answers.items() if path not in paths[:3]} == {404}
    assert [method for method, code in codes.items() if code is grpc.StatusCode.OK] == methods[:3]
    assert {code for method, code in codes.items() if method not in methods[:3]} == {
        grpc.StatusCode.UNIMPLEMENTED
    }


def call(url: str, method: str, body: bytes = b"", *, packed: bool = False) -> grpc.StatusCode:
    """The code of one call over gRPC."""
    with grpc.insecure_channel(urlsplit(url).netloc) as channel:
        compression = grpc.Compression.Gzip if packed else None
        try:
            channel.unary_unary(method)(body, timeout=20, compression=compression)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def test_the_collector_calls_nobody() -> None:
    """No module of the collector opens a connection but exporters with a target set; none to a trainer."""
    root = Path(overwatch.__file__).parent
    parts = ("collector", "serve", "aggregator.py", "fold.py", "projection", "diagnose", "state", "journal")
    files = [
        file
        for part in parts
        for file in ([root / part] if part.endswith(".py") else (root / part).rglob("*.py"))
    ]
    calling = set()
    for file in files:
        names = {
            node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            for node in ast.walk(ast.parse(file.read_text()))
        }
        if names & OUTWARD:
            module = ".".join(("overwatch", *file.relative_to(root).with_suffix("").parts))
            calling.add(module)

    assert len(files) > 50
    assert calling == CALLERS


def test_names_of_runs_are_never_names_of_files(tmp_path: Path) -> None:
    """Whatever a run calls itself, the collector's folder holds the same files and nothing lies beside it."""
    data = tmp_path / "deep" / "data"
    data.mkdir(parents=True)
    with running(data) as service:
        url = f"{service.endpoints.otlp_http}/v1/logs"

        def send(name: str) -> None:
            body = reported(name, [run_started()])
            assert query(url, body, "POST", Content_Type="application/x-protobuf").status == 200

        send("plain")
        folded = service.context.notifier
        eventually(lambda: folded.latest and folded.latest.tower.records >= 1)
        before = {str(file) for file in tmp_path.rglob("*")}
        for name in NAMES:
            send(name)
        eventually(lambda: folded.latest and folded.latest.tower.records >= 1 + len(NAMES))
        send("x" * 5000)  # written down, and belongs to no run
        written = data / "otlp" / "logs.jsonl"
        eventually(lambda: len(written.read_bytes().splitlines()) == 2 + len(NAMES))
    after = {str(file) for file in tmp_path.rglob("*")}

    new = {name.removeprefix(str(data)) for name in after - before}
    assert {name for name in new if "escape" in name or "run" in name.lower()} == set()
    assert {Path(name).parts[1] for name in new} <= {"otlp", "snapshots.jsonl", "journal", "checkpoints"}
    assert not Path("/etc/overwatch-escape").exists()


def highest(pid: int) -> int:
    """The most bytes of memory that a process held since `forget`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    pytest.fail("no VmHWM")


def forget(pid: int) -> int:
    """Begin to measure anew; returns what the process holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return highest(pid)


def test_a_bomb_without_a_token_costs_nothing(tmp_path: Path) -> None:
    """64 MiB of zeros are not inflated over either transport; with a token they cost what is allowed."""
    bomb = gzip.compress(bytes(64 << 20))
    process = spawn(tmp_path, "service.security.tokens.ingest.token=abc")
    try:
        endpoints = ready(tmp_path, process)
        where = urlsplit(str(endpoints.otlp_http))

        def send(authorization: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=20)
            headers = {
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
                "Authorization": authorization,
            }
            try:
                connection.request("POST", "/v1/logs", bomb, headers)
                return connection.getresponse().status
            finally:
                connection.close()

        method = f"/{WIRES[Signal.LOGS].service}/Export"

        def without() -> set[object]:
            over_grpc = call(str(endpoints.otlp_grpc), method, bytes(3 << 20), packed=True)
            return {send("Bearer wrong"), over_grpc}

        for _ in range(10):  # What a connection costs once is not what a bomb costs.
            assert without() == {401, grpc.StatusCode.UNAUTHENTICATED}
        held = forget(process.pid)
        for _ in range(10):
            assert without() == {401, grpc.StatusCode.UNAUTHENTICATED}
        refused = highest(process.pid) - held
        held = forget(process.pid)
        assert send("Bearer abc") == 413
        let_in = highest(process.pid) - held
    finally:
        process.kill()
        process.wait()

    print(f"refused {refused >> 10} KiB, let in {let_in >> 10} KiB")
    assert refused < 1 << 20
    assert let_in > 1 << 20

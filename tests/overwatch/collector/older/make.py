"""Makes a data folder as an older version of Overwatch leaves it: `python make.py COMMIT OUT.tar.xz`.

Run it below a clone of the repository. It checks the commit out, runs its collector with all files below one
folder, sends it 15 s of a simulated run, kills it once there are a recording and a checkpoint, and packs
the folder. Ports are fixed, so nothing else may run there.
"""

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BASE = 18_400
LISTENERS = (
    "receivers.otlp.protocols.http.endpoint", "receivers.otlp.protocols.grpc.endpoint",
    "exporters.prometheus.endpoint", "extensions.health_check.endpoint", "extensions.view.endpoint",
    "service.telemetry.metrics.address",
)  # fmt: skip
PLACES = {
    "exporters.otlp_file.path": "otlp",
    "exporters.snapshots.path": "snapshots.jsonl",
    "extensions.file_storage.directory": "",
}
SECONDS = 15


def main(commit: str, out: str) -> None:
    """Make one."""
    with tempfile.TemporaryDirectory() as scratch:
        tree, data = Path(scratch, "tree"), Path(scratch, "data")
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], check=True)
        try:
            fill(tree, data)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True)
        for name in ("snapshots.jsonl", "lock"):
            (data / name).unlink(missing_ok=True)
        with tarfile.open(out, "w:xz") as packed:
            for part in sorted(data.iterdir()):
                packed.add(part, part.name)
        shutil.rmtree(data)
    print(out, Path(out).stat().st_size, "bytes")


def fill(tree: Path, data: Path) -> None:
    """Run the commit's collector over a simulated run, then kill it."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "XDG_RUNTIME_DIR": str(tree)}
    overwatch = [sys.executable, "-m", "overwatch.cli"]
    sets = [f"{key}=127.0.0.1:{port}" for port, key in enumerate(LISTENERS, start=BASE)]
    sets += [f"{key}={data / name}" for key, name in PLACES.items()]
    words = [word for item in sets for word in ("--set", item)]
    collector = subprocess.Popen([*overwatch, "collect", *words], env=environment, cwd=tree)
    try:
        until(lambda: answers(BASE))
        simulated = ["--gpus", "1", "--envs", "1", "--slots", "1", "--rate", "1", "--seconds", str(SECONDS)]
        sender = [
            *overwatch,
            "simulate",
            *simulated,
            "--run-id",
            "older",
            "--endpoint",
            f"http://127.0.0.1:{BASE}",
        ]
        subprocess.run(sender, env=environment, cwd=tree, check=True)
        until(lambda: any((data / "otlp").glob("*.jsonl")) and any(data.rglob("fold-*.checkpoint")))
        time.sleep(5)
    finally:
        collector.kill()
        collector.wait()


def answers(port: int) -> bool:
    """Whether something listens."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def until(is_so: Callable[[], bool]) -> None:
    """Wait two minutes at most."""
    for _ in range(240):
        if is_so():
            return
        time.sleep(0.5)
    raise TimeoutError("the collector of that commit did not come so far")


if __name__ == "__main__":
    main(*sys.argv[1:])

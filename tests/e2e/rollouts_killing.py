"""A rollouts server that is killed over and over, handlers that send to it, a trainer that uses batches.

Each part writes down what it was answered; every request is repeated until it has an answer.
"""

import http.client
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.killing import compiled_in
from tests.overwatch_rl.orchestrator.postgres import Postgres
from tests.ports import free_port

ANSWER_S = 20.0
BATCH = 6
"""Sequences of a batch."""
TRAINER = {
    "wandb_group": "g", "wandb_project": "p", "batch_size": BATCH, "max_token_len": 64, "checkpoint_dir": "",
    "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 0,
}  # fmt: skip


class RolloutsServer:
    """One folder, and the processes that serve it one after the other at one port."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._flags = flags
        self.lives = 0
        self._stderr = folder.parent / f"{folder.name}.log"
        self._environment = compiled_in(folder.parent / "pycache")
        self._process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """What all lives wrote to standard error."""
        return self._stderr.read_text()

    def start(self) -> None:
        """Begin a life and wait until it serves."""
        command = [
            sys.executable, "-m", "overwatch_rl.cli", "rollouts", "--listen", f"127.0.0.1:{self.port}",
            "--folder", str(self.folder), "--no-telemetry", "--lease-s", "1", *self._flags,
        ]  # fmt: skip
        with self._stderr.open("a") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self._environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert re.match(rf"rollouts API at http://127\.0\.0\.1:{self.port}, ", line), (line, self.log)
        self.lives += 1

    @property
    def is_alive(self) -> bool:
        """Whether a life is on."""
        return self._process is not None

    def kill(self) -> None:
        """End this life at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """End this life well."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self.log
        self._process = None


class Servers:
    """Several over one database, of which a request goes to any."""

    def __init__(self, folder: Path, database: Postgres, count: int) -> None:
        flags = "--database", database.url
        self._servers = [RolloutsServer(folder / f"server-{number}", *flags) for number in range(count)]
        self._database = database
        self._chance = random.Random(count)  # noqa: S311 a test's own moments
        self.lives = 0

    @property
    def port(self) -> int:
        """Of any of them."""
        return random.choice(self._servers).port  # noqa: S311 as a balancer does

    @property
    def log(self) -> str:
        """What all lives wrote to standard error."""
        return "".join(server.log for server in self._servers)

    def start(self) -> None:
        """Begin a life of each that has none."""
        for server in self._servers:
            if not server.is_alive:
                server.start()
                self.lives += 1

    def kill(self) -> None:
        """End one of them at once, now and then the database."""
        self._chance.choice(self._servers).kill()
        if self._chance.random() < 0.25:
            self._database.stop("immediate")
            self._database.start()

    def stop(self) -> None:
        """End all well."""
        for server in self._servers:
            server.stop()


class Caller:
    """A client in a thread: `act` is called until it is stopped."""

    def __init__(self, name: str, server: RolloutsServer | Servers) -> None:
        self._server = server
        self._line: http.client.HTTPConnection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._failed: BaseException | None = None

    def start(self) -> None:
        """Begin to act."""
        self._thread.start()

    def stop(self) -> None:
        """End after the act that is under way; raises what it failed with."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def act(self) -> None:
        """One turn."""
        raise NotImplementedError

    def query(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The answer to a request, repeated until there is one."""
        while True:
            answer = self.once(method, path, body, **headers)
            if answer is not None:
                return answer
            time.sleep(0.01)  # the next life is not there yet

    def once(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any] | None:
        """The answer to one request, `None` where server or database ended before it was whole."""
        line = self._line or http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=ANSWER_S)
        data = None if body is None else msgspec.json.encode(body)
        try:
            line.request(method, path, data, {name.replace("_", "-"): text for name, text in headers.items()})
            reply = line.getresponse()
            found = reply.status, msgspec.json.decode(reply.read())
        except (OSError, http.client.HTTPException):
            line.close()
            self._line = None
            return None
        self._line = line
        return None if found[0] == http.HTTPStatus.SERVICE_UNAVAILABLE else found

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.act()
        except BaseException as error:  # noqa: BLE001 raised by `stop`
            self._failed = error
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            self._line.close()
            self._line = None


class Handler(Caller):
    """Sends groups of two sequences with a number of their own, each request under a key."""

    def __init__(self, number: int, server: RolloutsServer | Servers) -> None:
        super().__init__(f"handler-{number}", server)
        self.accepted: dict[int, int] = {}
        """The number of each group that was acknowledged, by its id."""
        self.refused = 0
        """Groups that were answered with a fault."""
        self._number = number
        self._chance = random.Random(number)  # noqa: S311 a test's own moments
        self._requests = self._next = 0
        self._env_id: int | None = None

    def act(self) -> None:
        """One request of one to three groups, of which one may be wrong."""
        if self._env_id is None:
            stated = {"max_token_length": 64, "desired_name": "e", "weight": 1.0, "group_size": 2}
            _, answer = self.query("POST", "/register-env", stated)
            self._env_id = answer.get("env_id")
            return
        self._requests += 1
        numbers = [self._next + place for place in range(self._chance.randint(1, 3))]
        self._next += len(numbers)
        wrong = self._chance.choice([None, None, None, 0])
        groups = [self._group(number, is_wrong=place == wrong) for place, number in enumerate(numbers)]
        key = f"{self._number}-{self._requests}"
        while True:
            status, answer = self.query("POST", "/scored_data_list", groups, Idempotency_Key=key)
            if status != 429:
                break
            time.sleep(0.05)  # the trainer is behind
        assert status == (200 if wrong is None else 422), answer
        for found, number in zip(answer["ids"], numbers, strict=True):
            if found is None:
                self.refused += 1
            else:
                assert found not in self.accepted
                self.accepted[found] = self.text(number)

    def text(self, number: int) -> int:
        """The token that identifies a group."""
        return self._number * 1_000_000 + number

    def _group(self, number: int, *, is_wrong: bool) -> dict[str, Any]:
        rows = [[self.text(number), 1], [2]]
        return {
            "tokens": rows,
            "masks": rows,
            "scores": [0.5] if is_wrong else [0.5, 1],
            "env_id": self._env_id,
        }


@dataclass(slots=True)
class Got:
    """What a trainer was given."""

    groups: dict[int, int] = field(default_factory=dict)
    """The token of each group, by its id."""
    deliveries: Counter[int] = field(default_factory=Counter)
    unflagged: list[int] = field(default_factory=list)
    """Groups that came again without the flag for it."""

    def take(self, batch: Any) -> list[int]:
        """Write a batch down; its ids."""
        assert sum(len(group["tokens"]) for group in batch["batch"]) == BATCH
        for group, item in zip(batch["batch"], batch["items"], strict=True):
            found = item["id"]
            assert self.groups.setdefault(found, group["tokens"][0][0]) == group["tokens"][0][0]
            if self.deliveries[found] and not item["redelivered"]:
                self.unflagged.append(found)
            self.deliveries[found] += 1
        return [item["id"] for item in batch["items"]]


class ExplicitTrainer(Caller):
    """Acknowledges each batch it used; now and then it forgets one, or gives it back."""

    def __init__(self, server: RolloutsServer | Servers) -> None:
        super().__init__("trainer", server)
        self.got = Got()
        self.used: set[int] = set()
        """Groups of batches whose acknowledgement was answered."""
        self._chance = random.Random(0)  # noqa: S311 a test's own moments

    def act(self) -> None:
        """One batch."""
        answer = self.once("GET", "/batch", Overwatch_Lease="1")
        if answer is None or not answer[1].get("batch"):
            time.sleep(0.01)  # nothing to use yet
            return
        ids = self.got.take(answer[1])
        lease = answer[1]["lease"]["id"]
        chosen = self._chance.choice(["ack", "ack", "ack", "release", None])
        if chosen is None:
            return
        _, answer = self.query("POST", f"/lease/{lease}/{chosen}")
        if answer.get("ended") == "acknowledged":
            assert self.used.isdisjoint(ids)
            self.used.update(ids)


class ImplicitTrainer(Caller):
    """An old client: the next request states that the last batch was used."""

    def __init__(self, server: RolloutsServer | Servers) -> None:
        super().__init__("trainer", server)
        self.got = Got()

    def act(self) -> None:
        """One batch."""
        answer = self.once("GET", "/batch")
        if answer is None or not answer[1].get("batch"):
            time.sleep(0.01)  # nothing to use yet
            return
        self.got.take(answer[1])


def kill_over_and_over(server: RolloutsServer | Servers, callers: list[Caller], cycles: int) -> None:
    """Lives of random length under load, each ended by SIGKILL; the last one is on at the end."""
    chance = random.Random(cycles)  # noqa: S311 a test's own moments
    server.start()
    first = Caller("first", server)
    first.query("POST", "/register", TRAINER)
    first.query("GET", "/batch")
    first.close()
    for caller in callers:
        caller.start()
    try:
        for _ in range(cycles):
            threading.Event().wait(chance.uniform(0.02, 0.4))
            server.kill()
            server.start()
    finally:
        for caller in callers:
            caller.stop()

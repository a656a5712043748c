"""Tokens that are replaced while the collector runs: files as they come, connections that are open."""

import asyncio
import http.client
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import grpc
import pytest

from overwatch.collector import Service
from overwatch.collector.auth import Role, TokenConfig, Tokens, TokensConfig
from overwatch.collector.signals import WIRES
from overwatch.config import ConfigError
from overwatch.discovery import path as announced
from overwatch.journal import Signal
from overwatch.serve.stream import REVOKED
from tests.overwatch.collector.running import config, eventually, reported, run_started, running

TYPE = {"Content-Type": "application/x-protobuf"}
OFTEN = "service.security.reload_interval_s=0.1"


def mount(folder: Path, **tokens: str) -> Path:
    """Files as Kubernetes lays a secret: links through `..data`, which is replaced in one step."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..v{len(list(folder.iterdir()))}"
    version.mkdir()
    for name, text in tokens.items():
        (version / name).write_text(text)
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    scratch = folder / "..next"
    scratch.symlink_to(version.name)
    scratch.replace(folder / "..data")
    return folder


def from_files(folder: Path) -> tuple[str, ...]:
    """The `--set` of tokens of all roles from a folder."""
    return tuple(f"service.security.tokens.{role.value}.filename={folder / role.value}" for role in Role)


def tokens_of(folder: Path) -> Tokens:
    """Tokens of a collector with a file for each role."""
    made = Tokens(TokensConfig(**{role.value: TokenConfig(filename=folder / role.value) for role in Role}))
    made.load()
    return made


def admitted(tokens: Tokens, role: Role, *words: str) -> list[str]:
    """The words that are tokens of a role."""
    return [word for word in words if tokens.judge(role, [f"Bearer {word}"]) is None]


def test_a_token_is_taken_up_once_two_looks_agree(tmp_path: Path) -> None:
    """What a slow writer has written so far is no token, and the one before it goes on."""
    mount(tmp_path / "t", ingest="first", read="r", control="c")
    tokens, file = tokens_of(tmp_path / "t"), tmp_path / "t" / "ingest"
    seen = []
    for text in ("sec", "second", "second"):
        file.write_text(text)
        tokens.reload(at_once=False)
        seen.append(admitted(tokens, Role.INGEST, "first", "sec", "second"))

    assert seen == [["first"], ["first"], ["second"]]


def test_looks_that_find_nothing_new_change_nothing(tmp_path: Path) -> None:
    """Judgements of before go on, so that connections keep their short way in."""
    tokens = tokens_of(mount(tmp_path / "t", ingest="first", read="r", control="c"))
    before = tokens.changes
    mount(tmp_path / "t", ingest="first", read="r", control="c")
    wrong = [tokens.reload(at_once=False) for _ in range(3)]

    assert (wrong, tokens.changes) == ([()] * 3, before)


def _is_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.unlink(),
        lambda file: file.write_text(""),
        lambda file: file.write_text("\n \n"),
        lambda file: file.write_text("two words"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_text("x" * 5000),
        lambda file: file.write_text("\n".join(map(str, range(65)))),
        _is_a_folder,
    ],
)
def test_a_file_that_cannot_be_used_keeps_the_tokens_of_its_role_only(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """A token that was revoked in another file is refused all the same, and health names the file."""
    folder = tmp_path / "t"
    folder.mkdir()
    for role in Role:
        (folder / role.value).write_text("operator" if role is Role.CONTROL else "first")
    with running(tmp_path / "data", OFTEN, *from_files(folder)) as service:
        tokens, health = service.context.guard.tokens, service.context.health
        spoil(folder / "read")
        (folder / "ingest").write_text("second")
        eventually(lambda: admitted(tokens, Role.INGEST, "first", "second") == ["second"])
        assert str(folder / "read") in eventually(lambda: health.degraded.get("tokens"))
        assert admitted(tokens, Role.READ, "first", "second") == ["first"]
        if (folder / "read").is_dir():
            (folder / "read").rmdir()
        (folder / "read").write_text("second")
        eventually(lambda: admitted(tokens, Role.READ, "first", "second") == ["second"])
        eventually(lambda: "tokens" not in health.degraded)


def test_a_revoked_token_stops_on_connections_that_are_open(tmp_path: Path) -> None:
    """Each request is judged anew, over HTTP and gRPC alike, and the announcement has the new token."""
    folder = mount(tmp_path / "t", ingest="first", read="r", control="c")
    with running(tmp_path / "data", OFTEN, *from_files(folder)) as service:
        service.announce()
        post, export, close = senders(service)
        assert [post("first"), export("first"), post("second")] == [200, 0, 401]
        mount(folder, ingest="second\nfirst", read="r", control="c")
        eventually(lambda: post("second") == 200)
        assert [post("first"), export("first"), export("second")] == [200, 0, 0]
        mount(folder, ingest="second", read="r", control="c")
        eventually(lambda: post("first") == 401)
        assert [export("first"), post("second"), export("second")] == [16, 200, 0]
        assert eventually(lambda: announced_token() == "second")
        close()


def announced_token() -> str:
    """The announced token of senders."""
    return str(json.loads(announced().read_text())["tokens"]["ingest"])


def senders(
    service: Service,
) -> tuple[Callable[[str], int], Callable[[str], int], Callable[[], None]]:
    """Over one connection each: a post's status, an export's code, and the end of both."""
    found = service.endpoints
    client = http.client.HTTPConnection("127.0.0.1", urlsplit(str(found.otlp_http)).port, timeout=20)
    channel = grpc.insecure_channel(urlsplit(str(found.otlp_grpc)).netloc)
    export = channel.unary_unary(f"/{WIRES[Signal.LOGS].service}/Export")

    def by_http(token: str) -> int:
        headers = TYPE | {"Authorization": f"Bearer {token}"}
        client.request("POST", "/v1/logs", b"", headers)
        answer = client.getresponse()
        answer.read()
        return answer.status

    def by_grpc(token: str) -> int:
        try:
            export(b"", metadata=[("authorization", f"Bearer {token}")], timeout=20)
        except grpc.RpcError as error:
            code: int = error.code().value[0]
            return code
        return 0

    def close() -> None:
        client.close()
        channel.close()

    return by_http, by_grpc, close


def test_the_stream_of_a_revoked_token_is_closed(tmp_path: Path) -> None:
    """With a code and the reason, and its reader is refused from then on; others go on."""
    asyncio.run(streams(tmp_path))


async def streams(tmp_path: Path) -> None:
    """Two readers, one of which loses its token."""
    folder = mount(tmp_path / "t", ingest="i", read="stays\ngoes", control="c")
    with running(tmp_path / "data", OFTEN, *from_files(folder)) as service:
        url = f"{service.endpoints.view}/api/v1/stream"
        async with aiohttp.ClientSession() as session:
            goes, stays = [
                await session.ws_connect(url, headers={"Authorization": f"Bearer {token}"})
                for token in ("goes", "stays")
            ]
            mount(folder, ingest="i", read="stays", control="c")
            message = await goes.receive(timeout=20)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, REVOKED)
            assert message.extra == "the token was revoked"
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await session.ws_connect(url, headers={"Authorization": "Bearer goes"})
            body, token = reported("run-a", [run_started()]), {"Authorization": "Bearer i"}
            async with session.post(
                f"{service.endpoints.otlp_http}/v1/logs", data=body, headers=token | TYPE
            ):
                pass
            assert (await stays.receive(timeout=20)).type is aiohttp.WSMsgType.TEXT
            await stays.close()


def test_a_look_that_fails_is_followed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a revoked token would hold for ever."""
    with running(tmp_path / "data", OFTEN) as service:
        guard, reload, looks = service.context.guard, service.context.guard.tokens.reload, list[bool]()

        def fails_once(*, at_once: bool) -> tuple[str, ...]:
            looks.append(at_once)
            if len(looks) == 1:
                raise RuntimeError("once")
            return reload(at_once=at_once)

        monkeypatch.setattr(guard.tokens, "reload", fails_once)
        eventually(lambda: len(looks) > 2)
        assert "rotation" not in service.context.health.degraded


@pytest.mark.parametrize("interval_s", ["0", "-1", "3601"])
def test_an_interval_that_would_never_end_is_refused(interval_s: str, tmp_path: Path) -> None:
    """The message names the setting and the value's bounds."""
    with pytest.raises(ConfigError, match=r"reload_interval_s .* must be above 0 and at most 3600"):
        config(tmp_path, f"service.security.reload_interval_s={interval_s}")

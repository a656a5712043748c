"""The files of the page: what is served, how, and that no path leads out of them."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from overwatch.serve.pages import POLICY, Pages


def scenario(pages: Pages, work: Callable[[ClientSession], Awaitable[None]]) -> None:
    """Run one test's coroutine against the served files."""

    async def run() -> None:
        app = web.Application()
        pages.add_to(app)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            async with asyncio.timeout(20), ClientSession(f"http://{host}:{port}") as client:
                await work(client)
        finally:
            await runner.cleanup()

    asyncio.run(run())


def test_the_page_and_each_of_its_files_are_served_with_strict_headers() -> None:
    """Every file of the package that a browser reads, byte for byte, with its type and the policy."""
    pages, folder = Pages(), files("overwatch") / "web"
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

    async def work(client: ClientSession) -> None:
        for name in pages.names:
            answer = await client.get("/" if name == "index.html" else f"/web/{name}")
            assert answer.status == 200
            assert await answer.read() == (folder / name).read_bytes()
            assert answer.content_type == types[Path(name).suffix]
            wanted = {
                "Content-Security-Policy": POLICY,
                "Cache-Control": "no-cache",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
            }
            assert {key: answer.headers[key] for key in wanted} == wanted

    assert {"index.html", "app.js", "style.css", "panels/header.js"} <= set(pages.names)
    scenario(pages, work)


def test_a_file_that_is_known_is_not_sent_again(tmp_path: Path) -> None:
    """The answer to its tag is empty; once the file has changed it is whole again."""
    (tmp_path / "app.js").write_text("1")
    before = Pages(tmp_path)
    (tmp_path / "app.js").write_text("2")
    tags: list[str] = []

    async def first(client: ClientSession) -> None:
        tags.append((await client.get("/web/app.js")).headers["ETag"])
        again = await client.get("/web/app.js", headers={"If-None-Match": f'"other", {tags[0]}'})
        assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tags[0])

    async def then(client: ClientSession) -> None:
        again = await client.get("/web/app.js", headers={"If-None-Match": tags[0]})
        assert (again.status, await again.read()) == (200, b"2")

    scenario(before, first)
    scenario(Pages(tmp_path), then)


@pytest.mark.parametrize(
    "path",
    ["/web/", "/web/nothing.js", "/web/../pages.py", "/web/%2e%2e/secret.js", "/web/..%2fsecret.js",
     "/web//etc/passwd", "/web/panels", "/web/panels/%2e%2e/%2e%2e/secret.js", "/web/notes.py",
     "/web/a%00.js", "/web/%5c..%5csecret.js"],
)  # fmt: skip
def test_no_path_leads_out_of_the_files(tmp_path: Path, path: str) -> None:
    """Neither dots, encoded or not, nor what is no file of the page."""
    folder = tmp_path / "web"
    (folder / "panels").mkdir(parents=True)
    (folder / "notes.py").write_text("secret")
    (tmp_path / "secret.js").write_text("secret")

    async def work(client: ClientSession) -> None:
        base = (await client.get("/web/")).url.origin()
        answer = await client.get(URL(f"{base}{path}", encoded=True))
        assert answer.status == 404
        assert b"secret" not in await answer.read()

    scenario(Pages(folder), work)

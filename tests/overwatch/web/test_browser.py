"""What the tests of the page call a fault is found: the fixture that finds none would prove nothing."""

import gc
import re
import socket
import threading
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.sync_api import Browser

from overwatch.serve.pages import POLICY
from tests.overwatch.web.browser import opened, served

BAD = {
    "an error": ("console.error('oh')", "console: oh"),
    "an exception": ("throw new Error('oh')", "script: oh"),
    "an inline style": ("document.body.setAttribute('style', 'color: red')", "CSP style-src-attr"),
    "markup from text": ("document.body.innerHTML = '<b>x</b>'", "script: .*TrustedHTML"),
    "a forbidden host": ("fetch('http://127.0.0.2:9/x').catch(() => 0)", "CSP connect-src"),
    "another host": ("fetch('http://127.0.0.2:9/x').catch(() => 0)", "another host: http://127.0.0.2:9/x"),
    "a missing file": ("import('/web/nosuch.js').catch(() => 0)", "console: .*404"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_page_with_a_fault_is_found(browser: Browser, name: str) -> None:
    """Each kind, by what the browser itself reports of it."""
    script, wanted = BAD[name]
    policy = {} if name == "another host" else {"Content-Security-Policy": POLICY}

    def make() -> web.Application:
        async def page(_: web.Request) -> web.Response:
            body = "<!doctype html><link rel=icon href=data:,><script type=module src=/web/bad.js></script>"
            return web.Response(text=body, content_type="text/html", headers=policy)

        async def bad(_: web.Request) -> web.Response:
            return web.Response(text=script, content_type="text/javascript")

        app = web.Application()
        app.router.add_get("/", page)
        app.router.add_get("/web/bad.js", bad)
        return app

    faults: list[str] = []
    with served(make) as url:
        page = opened(browser, url, faults)
        page.wait_for_load_state("networkidle")
        page.context.close()

    assert faults
    assert any(re.search(wanted, one) for one in faults), faults


def test_a_server_that_ends_leaves_no_connection_open() -> None:
    """Also of those that a browser opens in that moment; pytest reports each socket that stays open."""

    def connect(address: tuple[str, int]) -> None:
        with ExitStack() as opened_here, suppress(OSError):
            while True:
                opened_here.enter_context(socket.create_connection(address))

    for _ in range(10):
        with served(web.Application) as url:
            parts = urlsplit(url)
            address = str(parts.hostname), int(parts.port or 0)
            connecting = threading.Thread(target=connect, args=(address,))
            connecting.start()
        connecting.join()
        gc.collect()

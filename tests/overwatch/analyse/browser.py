"""A headless browser for tests: what it shows, what it fetches, what it complains of."""

import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str:
    """The path of one; skips where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    return found


def opened(page: Path, profile: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A page opened without a network: the DOM on stdout, the console and refused requests on stderr."""
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
        f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1280,940",
        *words, "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def drawn(report: Path) -> tuple[str, list[str]]:
    """A report once its script has drawn it: the DOM, and what the browser complained of."""
    complaints: list[str] = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = started.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.goto(report.as_uri())
        # The script names the page before it draws it anew.
        page.wait_for_selector("body[data-page=report] #main > *", state="attached", timeout=60_000)
        found = page.content()
        started.close()
    return found, complaints

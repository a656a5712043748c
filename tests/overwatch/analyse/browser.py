"""A headless browser for tests: what it shows, what it fetches, what it complains of."""

import shutil
import subprocess
from pathlib import Path

import pytest

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

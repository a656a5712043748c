"""The pictures of the page in docs/web/: `python -m tests.overwatch.web.pictures`, or `make screenshots`.

Each is the page in Chromium over the real view API, which shows a snapshot of the tests' scenes, or a
recording of a simulated storm as `overwatch web` serves it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from PIL import Image
from playwright.sync_api import sync_playwright

from overwatch.snapshot import Snapshot
from tests.overwatch.simulate.runs import overwatch
from tests.overwatch.tui import drawers, hostile, scenario, states
from tests.overwatch.web.browser import PHONE, Scene, chromium, opened, recorded, shown

FOLDER = Path("docs/web")
MOST_BYTES = 100_000
COLOURS = 64
STANDARD = (1280, 860)
RECORDING = "recording"


def many(count: int = 16_384) -> Snapshot:
    """A large fleet: the worst rows, and how many there are."""
    full = scenario.storm()
    groups = tuple(
        msgspec.structs.replace(group, n_envs=count // 2, hidden=count // 2 - 32)
        for group in full.board.groups
    )
    counts = {**full.board.counts, "ok": count - 6}
    board = msgspec.structs.replace(full.board, groups=groups, counts=counts)
    return msgspec.structs.replace(full, run=msgspec.structs.replace(full.run, n_envs=count), board=board)


def foreign() -> Snapshot:
    """Markup behind every word."""
    return hostile.poisoned_snapshot(drawers.opened(), "<b>x</b>\u202e")


SCENES: dict[str, Callable[[], Snapshot]] = {
    "healthy": scenario.healthy, "storm": scenario.storm, "ended-sick": states.ended_sick,
    "stale": states.stale, "many": many, "hostile": foreign, "open": drawers.opened,
}  # fmt: skip
SHOTS: dict[str, tuple[str, str, tuple[int, int], str]] = {
    **{name: (name, "", STANDARD, "light") for name in SCENES if name != "open"},
    "dark": ("storm", "", STANDARD, "dark"),
    "phone": ("storm", "", PHONE, "light"),
    "phone-dark": ("open", "?env=9", PHONE, "dark"),
    "curves": (RECORDING, "?page=curves", STANDARD, "light"),
    "heat": (RECORDING, "?page=heat", STANDARD, "light"),
    "findings": (RECORDING, "?page=findings", STANDARD, "dark"),
    "replay": (RECORDING, "?env=30", STANDARD, "light"),
}
"""File to scene, address, size and scheme."""


@contextmanager
def served(scene: str) -> Iterator[str]:
    """The address of a scene's page."""
    if scene != RECORDING:
        with Scene(SCENES[scene]()).served() as url:
            yield url
        return
    with TemporaryDirectory() as name:
        folder = Path(name) / "storm"
        words = ("--gpus", "2", "--envs", "16", "--seconds", "90", "--seed", "3", "--out", str(folder))
        faults = (f"--fault={fault}" for fault in ("cull-storm@30", "thermal-throttle@40", "crash-storm@80"))
        done = overwatch("simulate", *words, *faults)
        if done.exit_code:
            raise RuntimeError(done.output)
        with recorded(folder) as url:
            yield url


def main(names: list[str]) -> int:
    """Take those pictures, or all; fails where the browser reports a fault or a picture is too large."""
    faults: list[str] = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name in names or SHOTS:
            scene, query, size, scheme = SHOTS[name]
            with served(scene) as url:
                page = shown(opened(browser, url + query, faults, size=size, scheme=scheme))
                page.wait_for_timeout(1500)
                taken = page.screenshot()
                page.context.close()
            file = FOLDER / f"{name}.png"
            # A page has few colours: a palette of them is a third of the bytes.
            Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS).save(file, optimize=True)
            size_of = file.stat().st_size
            if size_of > MOST_BYTES:
                faults.append(f"{file} has {size_of:,} bytes; {MOST_BYTES:,} are the most")
            sys.stdout.write(f"{file} {size_of:,} bytes\n")
        browser.close()
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

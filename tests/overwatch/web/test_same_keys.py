"""Each key of the terminal means the same on the page, or is named here with why the page lacks it."""

from typing import Final

from overwatch.tui.keys import KEYS, Key, Mode, spelt
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene, shown

PAGES: Final = {
    Mode.BOARD: ("flight",), Mode.FEED: ("feed",), Mode.DRAWER: ("drawer", "flight"), Mode.FULL: ("full",),
    Mode.RUNS: ("runs",), Mode.FINDINGS: ("findings",), Mode.POLICY: ("policy",), Mode.COMPARE: ("compare",),
    Mode.CURVES: ("curves",), Mode.CONFIG: ("config",), Mode.LOGS: ("feed",), Mode.HELP: ("help",),
}  # fmt: skip
"""Where the page has what the terminal has in a mode."""
BROWSERS: Final = {
    "down": "ArrowDown", "up": "ArrowUp", "left": "ArrowLeft", "right": "ArrowRight", "pagedown": "PageDown",
    "pageup": "PageUp", "enter": "Enter", "escape": "Escape", "tab": "Tab", "home": "Home", "f1": "F1",
}  # fmt: skip
"""Names of keys that type nothing."""
MEANS: Final = {
    "move": "cursor to the next line, to the one before; PgDn, PgUp: ten",
    "toggle seeds": "only seeds, or no longer", "toggle policy": "only policy, or no longer",
    "toggle log": "only log, or no longer",
    "outlier 1": "next, previous environment that is not OK",
    "outlier -1": "next, previous environment that is not OK",
    "scroll 1": "a line further down, up", "scroll -1": "a line further down, up",
    "scroll 10": "the text of the drawer further down; PgUp: up",
    "scroll -10": "the text of the drawer further down; PgUp: up",
    "alarm": "open that alarm",
    "curve down": "to the next chart, to the one before", "curve up": "to the next chart, to the one before",
    "read": "read values at one time; x: no more", "window": "half of it earlier, later",
    "window all": "the last tenth, then less; Z: all of it",
    "overlay": "over each curve: ranks, or nothing",
    "focus feed": "the feed, or back", "page policy": "all of the policy, or back",
    "ack": "acknowledge the finding that is open",
    "map": "envs over the time of the run, or back", "map gpu": "GPUs over the time of the run, or back",
    "host": "the host and its busiest processes, or back", "page logs": "the trainer's own log, or back",
    "copy": "copy the link to what is shown",
    "step": "one second back, one second on", "faster": "play half as fast, twice as fast",
    "mark": "to the alarm before on the timeline, to the next",
    "past": "of a live run: what is open as it was a second before; a second on; "
    "else the alarm before, the next",
    "moment": "the moment when the finding began",
    "back": "close what is open, then drop the filter", "help": "this help, or back",
    "inspect": "all about the lane of the cursor",
}  # fmt: skip
"""In what words the page has an action (`scroll 10`, or all of `read`) where they are not the terminal's."""
ALSO: Final = {
    ("mark", "drawer"): MEANS["past"], ("mark", "full"): MEANS["past"],
    ("back", "feed"): "close what is open, else show all lines again", ("back", "curves"): "",
}  # fmt: skip
"""Where one key of the page has two of the terminal's meanings, or one row of help states it for all."""
SCROLLED: Final = "the browser scrolls it, and its links have the focus by Tab"
LACKS: Final = {
    "line": SCROLLED, "pick": SCROLLED, "choose": SCROLLED,
    "scroll help": "the browser scrolls it", "topic": "help is one page",
    "curve": "PgDn and the arrows scroll the page; Tab goes to the next chart by itself",
    "next_panel": "Tab is the browser's own", "open_line": "the env in a line of the feed is a link",
    "mark_run": "the page of curves has a list of the runs that lie over it",
    "focus board feed": "the list of pages leads to the board",
    "focus board full": "f and Esc lead to the board",
    "inspect feed": "a line of the feed is shown with all of its fields",
    "zoom": "the heatmap zooms by z, Z, the wheel and two fingers",
    "cause": "a finding is opened from the alarms", "rewind": "the timeline is clicked",
    "replay": "the timeline is there while a run is recorded",
    "command": "the address, links and lists do what commands do",
    "leave": "a browser is not left by a key", "help": "F1 is the browser's own; ? is the same",
}  # fmt: skip
"""Why the page lacks an action: by its name, where it matters with the page."""


def typed(name: str) -> str | None:
    """The browser's name of a key; `None` for one with Ctrl or a second name of a capital letter."""
    return None if "+" in name else BROWSERS.get(name) or spelt(name)[1]


def expected(key: Key, mode: str) -> set[str]:
    """In what words the page may have it."""
    own = [word for name in (key.name, key.action) if (word := MEANS.get(name)) is not None]
    also = ALSO.get((key.action, mode))
    return {key.does, *own} if also is None else {also}


def test_a_key_that_both_have_means_the_same_and_none_is_forgotten(page_of: PageOf) -> None:
    """The page's table, as `?` lists it, against the terminal's, mode by mode; no row here is idle."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        table = page.evaluate(
            """import('/web/keys.js').then(({KEYS}) =>
            KEYS.map(({keys, does, pages}) => ({keys, does, pages: pages ?? []})))"""
        )
        page.close()

    def does(pressed: str, pages: tuple[str, ...]) -> str | None:
        rows = (one for place in (*pages, None) for one in table if fits(one, pressed, place))
        return next((one["does"] for one in rows), None)

    wrong: list[str] = []
    forgotten: list[str] = []
    used: set[str] = set()
    words: set[str | None] = set()
    for key in KEYS:
        for pressed in filter(None, map(typed, key.names)):
            for mode in key.modes:
                found = does(pressed, PAGES[mode])
                where = PAGES[mode][0]
                place = f"{pressed} on {where}: {key.name}"
                reasons = {f"{key.action} {key.of} {where}", f"{key.action} {where}", key.action}
                words.add(found)
                if found is None:
                    used |= reasons & LACKS.keys()
                    forgotten += [] if reasons & LACKS.keys() else [place]
                elif found not in expected(key, where):
                    wrong.append(f"{place} is {key.does!r}, the page has {found!r}")

    assert (wrong, forgotten) == ([], [])
    assert sorted(LACKS.keys() - used) == []
    assert {*MEANS.values(), *ALSO.values()} <= words


def fits(one: dict[str, list[str]], pressed: str, place: str | None) -> bool:
    """Whether a row of the page's table is what a key does there, or everywhere with `None`."""
    return pressed in one["keys"] and (place in one["pages"] if place else not one["pages"])

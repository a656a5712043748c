"""What the user did: cursor, focus, drawer, folds, filter, toggles. Keys go in, a view and a `Ui` come out.

Owns every decision about keys; knows snapshots and nothing of Textual, drawing or the network, so that it
can be tested by pressing keys. One `do_` method for each action of the key table.
"""

from collections.abc import Callable

import msgspec

from overwatch.snapshot import Snapshot
from overwatch.tui import commands
from overwatch.tui.charting import Charting
from overwatch.tui.completion import Vocabulary
from overwatch.tui.context import COMPACT_BELOW, Ui
from overwatch.tui.inspected import SlotOf
from overwatch.tui.keys import Key, Mode, find, keymap
from overwatch.tui.paging import Page
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.panels.help import TOPICS
from overwatch.tui.playback import Transport
from overwatch.tui.prompt import Prompt
from overwatch.tui.settings import Settings


class Session(Charting):
    """One user at one terminal."""

    def __init__(self, transport: Transport | None = None, settings: Settings | None = None) -> None:
        super().__init__(transport)
        self.settings = settings or Settings()
        self.keys = keymap(self.settings.keys)
        self.suspending = False
        """The user wants the shell."""
        self.saving: str | None = None
        """The file that a picture of the screen is wanted in, until it is written."""
        self._helping = False
        self._topic = 0
        """The page of help."""
        self._prompt: Prompt | None = None

    @property
    def slots(self) -> bool:
        """Whether the run has slots."""
        return self.snapshot is not None and self.snapshot.run.slots_enabled

    @property
    def mode(self) -> Mode:
        """Where keys go."""
        if self._helping:
            return Mode.HELP
        if self._prompt is not None:
            return Mode.PROMPT
        if self.page is not None:
            return {
                Page.RUNS: Mode.RUNS, Page.FINDINGS: Mode.FINDINGS, Page.POLICY: Mode.POLICY,
                Page.COMPARE: Mode.COMPARE, Page.CURVES: Mode.CURVES, Page.CONFIG: Mode.CONFIG,
                Page.LOGS: Mode.LOGS,
            }[self.page]  # fmt: skip
        if self.opened:
            if self._full or self.width < COMPACT_BELOW:
                return Mode.FULL
            return Mode.FEED if self._feed_has_keys else Mode.DRAWER
        return Mode.FEED if self._feed_has_keys else Mode.BOARD

    @property
    def ui(self) -> Ui:
        """What renderers may know."""
        return Ui(
            mode=self.mode,
            folds=dict(self._folds),
            toggles=self._toggles,
            search=self._search,
            line=self._line,
            prompt=self._prompt,
            env_id=self._env_id,
            past=self.past.shown,
            alarm=self._alarm,
            full=self._full,
            scroll=self._scroll,
            playback=self.playback,
            recorded=self.recorded,
            notice=self.notice,
            inspected=self._inspected,
            pinned=self._pinned,
            history=self.history,
            heat=None if self._mapped is None else self.heat,
            heat_of=self._mapped or "env",
            facts=self._facts,
            logs=self.logs if self.page is Page.LOGS else (),
            topic=self._topic,
            heat_step=self._heat_step,
            keys=self.keys,
            runs=self.runs,
            picked=self.picked,
            beside=self.beside,
            charts=self.charts,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """What can be named in a prompt."""
        alarms = 0 if self.shown is None else len(on_rail(self.shown))
        runs = tuple(one.run.run_id for one in self.runs if one.run is not None)
        return Vocabulary.of(self.snapshot, replay=self.transport is not None, alarms=alarms, runs=runs)

    def take(self, snapshot: Snapshot) -> None:
        """The next snapshot; a feed line under the cursor stays there."""
        if self.snapshot is not None and snapshot.run.run_id != self.snapshot.run.run_id:
            self._close()
            self.cursor, self._row, self._line, self._folds = None, 0, None, {}
        self.snapshot = snapshot
        before = len(self.feed) if self._line is not None else 0
        added = self.scrollback.take(snapshot)
        self.heat.take(snapshot)
        self.history.take(snapshot)
        self.past.take(snapshot, self._env_id)
        if self._line is not None and added:
            self._line = max(0, min(self._line + len(self.feed) - before, len(self.feed) - 1))
        if self._alarm is not None:
            same = (finding for finding in snapshot.findings if finding.id == self._alarm.id)
            self._alarm = next(same, self._alarm)

    def press(self, key: str, character: str | None, now: float) -> None:
        """One key, by Textual's name; `character` is what it types, `now` monotonic seconds."""
        self.touched(now)
        mode = self.mode
        if mode is Mode.PROMPT:
            self._type(key, character)
            return
        found = self.key(key)
        if found is not None:
            self.act(found.action, found.argument)

    def key(self, name: str) -> Key | None:
        """What a key does now, by Textual's name."""
        return find(name, self.mode, self.keys, slots=self.slots, replay=self.transport is not None)

    def touched(self, now: float) -> None:
        """The user does something: what was said to them goes, and rows stand still for a while."""
        self.notice = None
        self.hold.press(self.shown, now)

    def act(self, name: str, argument: int | str = 0) -> None:
        """Do what a key of that action does."""
        action: Callable[[int | str], None] = getattr(self, f"do_{name}")
        action(argument)

    def paste(self, text: str) -> None:
        """Text pasted into an open prompt."""
        if self._prompt is not None:
            self._prompt = self._prompt.insert(text)
            self._apply_prompt(self._prompt)

    def _type(self, key: str, character: str | None) -> None:
        prompt = self._prompt
        if prompt is None:
            return
        if key == "ctrl+c":
            self.leaving = True
        elif key == "escape":
            self._prompt = None
            self._apply_text(prompt.kind, prompt.before)
        elif key == "enter":
            self._prompt = None
            self._enter(prompt)
        else:
            typed = character is not None and character.isprintable() and not key.startswith("ctrl+")
            self._prompt = prompt.insert(character or "") if typed else prompt.press(key)
            self._apply_prompt(self._prompt)

    def _enter(self, prompt: Prompt) -> None:
        """A candidate that the user went to is taken; a command is done."""
        if prompt.chosen is not None:
            prompt = prompt.taken
            self._apply_prompt(prompt)
        if prompt.kind != "command":
            self.notice = prompt.error
            return
        try:
            commands.run(self, prompt.text, self.vocabulary)
        except commands.CommandError as error:
            self.notice = str(error)

    def _apply_prompt(self, prompt: Prompt) -> None:
        if prompt.error is None:
            self._apply_text(prompt.kind, prompt.text.strip())

    def _apply_text(self, kind: str, text: str) -> None:
        """A filter and a search hold while they are typed; a command when it is done."""
        if kind == "filter":
            self.filter_by(text)
        elif kind == "search":
            self.search_for(text)

    def _ask(self, kind: str, text: str) -> None:
        self._prompt = Prompt(kind=kind, text=text, at=len(text), before=text, vocabulary=self.vocabulary)

    def do_filter(self, _: int | str) -> None:
        """Ask for a filter."""
        self._ask("filter", self._filter)

    def do_search(self, _: int | str) -> None:
        """Ask for words to search the feed for."""
        self._ask("search", self._search)

    def do_command(self, _: int | str) -> None:
        """Ask for a command."""
        self._helping = False
        self._ask("command", "")

    def ask_command(self, text: str) -> None:
        """Ask for a command that is begun already."""
        self._ask("command", text)

    def save_picture(self, file: str) -> None:
        """Have a picture of the screen written; without a name into one of its own."""
        self.saving = file or "auto"

    def change(self, name: str, value: str) -> None:
        """Change a setting until the user leaves."""
        wanted = value == "on" if name == "mouse" else value
        self.settings = msgspec.structs.replace(self.settings, **{name: wanted})
        self.notice = f"{name} is {value} until you leave; write it into the settings file to keep it"

    def do_home(self, _: int | str) -> None:
        """The overview, with the cursor on the worst env."""
        self._close()
        self.cursor, self._row = None, 0
        self._helping = self._feed_has_keys = False
        self.page = None

    def do_help(self, _: int | str) -> None:
        """Help, or back from it."""
        self._helping = not self._helping
        self._scroll = self._topic = 0

    def do_topic(self, by: int | str) -> None:
        """The next page of help, or the one before; round at the ends."""
        self._topic, self._scroll = (self._topic + int(by)) % len(TOPICS), 0

    def do_back(self, _: int | str) -> None:
        """Out of what was opened last."""
        if self.cancel_seek():
            self.notice = "seek cancelled"
        elif self._helping:
            self._helping, self._scroll = False, 0
        elif self.page is not None:
            self.page = None
        elif self.mode is Mode.FEED and (self._search or self._toggles):
            self._toggles = frozenset()
            self.search_for("")
        elif self.mode is Mode.FEED:
            self._feed_has_keys, self._line = False, None
        elif isinstance(self._inspected, SlotOf):
            self._inspected = None
        elif self.opened:
            self._close()
        elif self._mapped is not None:
            self._mapped = None
        elif self._filter:
            self.filter_by("")

    def do_suspend(self, _: int | str) -> None:
        """To the shell, until the user comes back."""
        self.suspending = True

    def do_leave(self, _: int | str) -> None:
        """Quit."""
        self.leaving = True

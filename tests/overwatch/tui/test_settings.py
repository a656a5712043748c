"""The terminal's settings: where they lie, what they may be, and what is reported of a wrong one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.tui.keys import KEYS, Mode, find, keymap
from overwatch.tui.settings import VARIABLE, Settings, SettingsError, parse, place, read, schema
from overwatch.tui.theme import THEMES, Look
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal


def test_without_a_file_the_settings_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file's place is the platform's, or the one that the environment names."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert place() == tmp_path / "overwatch" / "tui.yaml"
    assert read() == Settings()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.yaml"))
    assert place() == tmp_path / "mine.yaml"
    with pytest.raises(SettingsError, match=r"mine\.yaml is not there"):
        read()


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("theem: ansi", "unknown key 'theem'; did you mean theme?"),
        ("theme: red", "Invalid enum value 'red' - at `$.theme`"),
        ("- theme", "expected keys and values, found list; e.g. theme: ansi"),
        ("theme: [", "no YAML"),
        ("keys: {filtr: [f]}", "keys: nothing is called 'filtr'; did you mean 'filter'?"),
        ("keys: {filter: [j]}", "keys: 'j' is both 'move 1' and 'filter' on the flight board"),
        ("keys: {filter: []}", "keys: 'filter' needs at least one key"),
    ],
)
def test_a_wrong_setting_names_the_key_and_the_fix(text: str, stated: str, tmp_path: Path) -> None:
    """With the file before it, and status 1 from the command line."""
    file = tmp_path / "tui.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as raised:
        read(file)
    assert str(raised.value).startswith(str(file))
    assert stated in str(raised.value)
    done = CliRunner().invoke(main, ["tui", "--settings", str(file), "--connect", "ws://127.0.0.1:1"])
    assert done.exit_code == 1
    assert stated in done.output


def test_a_users_keys_take_the_place_of_ours_in_keys_help_and_key_line() -> None:
    """F2 filters, the slash no longer does, and both texts show F2."""
    settings = parse("keys: {filter: [f2]}")
    table = keymap(settings.keys)
    found = find("f2", Mode.BOARD, table, slots=True, replay=False)
    assert found is not None
    assert found.action == "filter"
    assert find("slash", Mode.BOARD, table, slots=True, replay=False) is None
    terminal = Terminal(scenario.storm(), settings=settings)
    assert "f2 filter" in terminal.lines[-1]
    terminal.press("f2")
    assert terminal.session.mode is Mode.PROMPT
    terminal.press("escape", "question_mark")
    assert "f2     filter the environments" in terminal.screen


def test_the_shipped_keys_do_not_clash() -> None:
    """One key, one thing, in each place."""
    assert keymap({}) == KEYS


@pytest.mark.parametrize(
    ("env", "encoding", "look"),
    [
        ({"TERM": "xterm-256color"}, "UTF-8", Look(theme="default")),
        ({"TERM": "linux"}, "utf8", Look(theme="ansi")),
        ({"TERM": "linux", "COLORTERM": "truecolor"}, "utf8", Look(theme="default")),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "utf8", Look(theme="mono")),
        ({"TERM": "dumb"}, "utf8", Look(theme="ansi", ascii=True)),
        ({"TERM": "xterm-256color"}, "ANSI_X3.4-1968", Look(theme="default", ascii=True)),
    ],
)
def test_the_look_follows_the_terminal(env: dict[str, str], encoding: str, look: Look) -> None:
    """Unless a setting differs."""
    assert Look.of(Settings(), env, encoding) == look
    forced = Settings(theme="colour-blind", glyphs="unicode")
    assert Look.of(forced, env, encoding) == Look(theme="colour-blind")


def test_the_colour_blind_theme_differs_in_colours_alone() -> None:
    """The same roles are there; ok, warning and critical have other colours than green and red."""
    default, other = THEMES["default"], THEMES["colour-blind"]
    assert default.keys() == other.keys()
    differing = {role.value for role in default if default[role] != other[role]}
    assert {"ok", "warn", "crit"} <= differing
    assert not differing & {"text", "muted", "title", "accent", "stale"}


def test_the_schema_describes_every_field() -> None:
    """For editors; and `overwatch config schema tui` prints it."""
    fields = schema()["$defs"]["Settings"]["properties"]
    assert set(fields) == set(Settings.__struct_fields__)
    assert all(field["description"] for field in fields.values())
    printed = CliRunner().invoke(main, ["config", "schema", "tui"])
    assert printed.exit_code == 0
    assert '"theme"' in printed.output


def test_locate_prints_where_things_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One place for scripts, all of them for people; nothing is made."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    one = CliRunner().invoke(main, ["locate", "config"])
    assert one.output.strip() == str(tmp_path / "overwatch" / "tui.yaml")
    every = CliRunner().invoke(main, ["locate"])
    assert all(name in every.output for name in ("config", "data", "spool", "discovery"))
    assert list(tmp_path.iterdir()) == []

"""What a user can set for the terminal, in a file or while it runs. Validated; fields have docstrings.

Pure but for `read`. Must not know drawing. The keys of the file are the fields below.
"""

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
import yaml
from platformdirs import user_config_path

from overwatch.regular import read_regular
from overwatch.tui.keys import KeymapError, keymap

VARIABLE: Final = "OVERWATCH_TUI_CONFIG"
"""Environment variable: the file to read instead of the one in the platform's place."""
ThemeName = Literal["auto", "default", "ansi", "colour-blind", "mono"]
THEME_NAMES: Final[tuple[ThemeName, ...]] = get_args(ThemeName)


def _doc(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class SettingsError(ValueError):
    """Settings that cannot be used; the message names the file, the key, the value and the fix."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terminal's settings."""

    theme: Annotated[
        ThemeName,
        _doc("Colours. auto: mono where NO_COLOR is set, ansi on terminals of 16 colours, else default."),
    ] = "auto"
    glyphs: Annotated[
        Literal["auto", "unicode", "ascii"],
        _doc("What is drawn with. auto: ASCII where the locale is not UTF-8 or TERM is dumb."),
    ] = "auto"
    clock: Annotated[Literal["local", "utc"], _doc("Time zone of clock times: this machine's, or UTC.")] = (
        "local"
    )
    mouse: Annotated[
        bool,
        _doc("Clicks select and open, the wheel scrolls. Off, the terminal keeps its mouse for itself."),
    ] = True
    keys: Annotated[
        dict[str, list[str]],
        _doc("Keys by what they do, e.g. filter: [slash, f]; names are those of the help page."),
    ] = {}

    def __post_init__(self) -> None:
        keymap(self.keys)


def place() -> Path:
    """Where the settings lie, whether there are any or not."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else user_config_path("overwatch") / "tui.yaml"


def read(path: Path | None = None) -> Settings:
    """The user's settings; the defaults where there is no file. Raises `SettingsError`."""
    where = path or place()
    try:
        text = read_regular(where).decode()
    except FileNotFoundError:
        if path is not None or os.environ.get(VARIABLE):
            raise SettingsError(f"{where} is not there; write it, or leave its name out") from None
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {where}: {error}") from None
    try:
        return parse(text)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None


def parse(text: str) -> Settings:
    """Settings out of YAML; raises `SettingsError`."""
    try:
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"no YAML: {error}") from None
    if data is None:
        return Settings()
    if not isinstance(data, dict):
        raise SettingsError(f"expected keys and values, found {type(data).__name__}; e.g. theme: ansi")
    known = Settings.__struct_fields__
    for name in data:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"keys are {', '.join(known)}"
            raise SettingsError(f"unknown key {name!r}; {hint}")
    try:
        return msgspec.convert(data, Settings)
    except (msgspec.ValidationError, KeymapError) as error:
        raise SettingsError(str(error)) from None


def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    return msgspec.json.schema(Settings)

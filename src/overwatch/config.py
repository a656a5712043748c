"""The collector's configuration: the shipped file, a user's file over it, the environment, `--set`.

Rules: an unknown key fails with its path and the nearest known one; nothing is guessed. All that is wrong is
named at once: a value that cannot be used is left out, and what only its absence makes wrong is not named.
Assembles; knows the collector's types and nothing of how they work.
"""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from overwatch.collector.components import ROOTS, component_of, sections
from overwatch.collector.setting_types import Secret, redact, texts_in
from overwatch.collector.settings import SNAPSHOTS, CollectorConfig, ServiceSection, listeners, problems
from overwatch.config_yaml import Number, read
from overwatch.diagnose.judging import DiagnosisConfig
from overwatch.regular import SMALL_BYTES

_S = TypeVar("_S", bound=msgspec.Struct)
_T = TypeVar("_T")
_TOP: Final = (*ROOTS, "service", "diagnosis")
_PIPELINES: Final = "service.pipelines"
_WHOLE: Final = frozenset({_PIPELINES, "service.extensions"})
"""Sections that a user's file replaces rather than amends."""

_SECRET: Final = msgspec.inspect.type_info(Secret)
_ANY: Final = msgspec.inspect.AnyType()
_TEXTS: Final = (msgspec.inspect.StrType, msgspec.inspect.CustomType)
_MOST: Final = 2**53
"""The largest number that a file and every program that reads it agree on."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
"""One step of a path: the place in a list, or a key."""
_MISSING: Final = "missing"
"""A word of the message where a section lacks a key."""
_LEFT_OUT: Final = object()
"""What stands for a value that cannot be used."""


def file_type() -> type[msgspec.Struct]:
    """The whole file as one type, without the components that have a name of their own."""
    return msgspec.defstruct(
        "CollectorConfig",
        [
            *((root, sections(root)) for root in ROOTS),
            ("service", ServiceSection),
            ("diagnosis", DiagnosisConfig, DiagnosisConfig()),
        ],
        namespace={"__doc__": CollectorConfig.__doc__},
        kw_only=True,
        forbid_unknown_fields=True,
    )


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the path, the value and the fix."""


def load(path: Path | None, sets: Sequence[str]) -> CollectorConfig:
    """The shipped configuration, `path` over it, each `a.b.c=value` over that; raises `ConfigError`."""
    return load_named(path, sets)[0]


def load_named(path: Path | None, sets: Sequence[str]) -> tuple[CollectorConfig, frozenset[str]]:
    """As `load`, with the endpoints that a person named, be it as they are shipped."""
    config, given, wrong = looked_at(path, sets)
    if wrong:
        raise ConfigError("\n".join(wrong))
    return config, frozenset(one.endpoint for one in listeners(config) if _names(given, one.path))


def looked_at(path: Path | None, sets: Sequence[str]) -> tuple[CollectorConfig, dict[str, Any], list[str]]:
    """The configuration without what cannot be used, what a person gave of it, and all that is wrong."""
    faults = _Faults()
    data, given = _parse(shipped(), "the shipped configuration"), dict[str, Any]()
    if path is not None:
        given = _tried(faults, partial(_read, path))
        data = _merge(data, given, "")
    for item in sets:
        one = _tried(faults, partial(_one, item))
        data, given = _merge(data, one, "", replace=False), _merge(given, one, "", replace=False)
    if isinstance(exporters := given.get("exporters"), dict) and not _names(given, _PIPELINES):
        # Who writes no pipelines means the shipped one, with each notifier that has somewhere to send.
        line = data["service"]["pipelines"][SNAPSHOTS]["exporters"]
        line += [
            name for name, one in exporters.items() if isinstance(one, dict) and one.keys() & {"url", "argv"}
        ]
    kind = msgspec.inspect.type_info(file_type())
    spare = _expand_all(_parse(shipped(), "the shipped configuration"), kind, "", _Faults())
    data = _expand_all(_known(data, kind, "", faults), kind, "", faults)
    config = _made(data, spare, faults)
    for where, what in problems(config):
        faults.add_of_several(where, f"{where}: {what}")
    return config, given, faults.texts


def _tried(faults: "_Faults", make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` gives; nothing, and a fault, where it cannot be read."""
    try:
        return make()
    except ConfigError as error:
        faults.add("", str(error))
        return {}


class _Faults:
    """What is wrong, in the order it was found, and the paths of what was left out for it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._gone: dict[str, bool] = {}
        """Whether it was a whole section, by its path."""

    def add(self, path: str, text: str) -> None:
        """Name what is wrong with a value, which is left out."""
        self.texts.append(text)
        self.leave_out(path)

    def leave_out(self, path: str, *, is_section: bool = False) -> None:
        """Keep in mind that what is at a path is not looked at any further."""
        self._gone[path] = is_section

    def add_of_several(self, path: str, text: str) -> None:
        """Name what is wrong with values as they stand together, unless one that was left out explains it."""
        words = set(re.findall(r"\w+", text))
        if not any(self._explains(gone, path, words) for gone in self._gone):
            self.texts.append(text)

    def _explains(self, gone: str, path: str, words: set[str]) -> bool:
        if f"{path}.".startswith(f"{gone}."):
            return True
        section, _, name = gone.rpartition(".")
        if path == section and _MISSING in words:
            return True
        return name in words and (self._gone[gone] or gone.startswith(f"{path}."))


def _names(given: Any, path: str) -> bool:
    """Whether a person's own configuration has a value at a path."""
    for key in path.split("."):
        given = given.get(key) if isinstance(given, dict) else None
    return given is not None


def _made(data: Any, spare: Any, faults: _Faults) -> CollectorConfig:
    """The configuration of plain values, with a spare one for each that is no setting."""
    named = {
        (root, key): section or {}
        for root in ROOTS
        if isinstance(found := data.get(root), dict)
        for key, section in found.items()
        if "/" in str(key)
    }
    plain = {
        root: {key: one for key, one in found.items() if (root, key) not in named}
        if isinstance(found, dict)
        else found
        for root, found in data.items()
    }
    file: Any = _converted(plain, spare, file_type(), "", faults)
    if file is None:
        raise ConfigError("\n".join(faults.texts))
    parts = {root: msgspec.structs.asdict(getattr(file, root)) for root in ROOTS}
    for (root, key), given in named.items():
        section = _converted(given, {}, component_of(root, key).config, f"{root}.{key}", faults)
        if section is not None:
            parts[root][key] = section
    return CollectorConfig(**parts, service=file.service, diagnosis=file.diagnosis)


def _converted(data: Any, spare: Any, kind: type[_S], path: str, faults: _Faults) -> _S | None:
    """The settings of plain values, without those that are none: faults. `None` where too few are left."""
    while True:
        made, where, what = _attempt(data, spare, kind)
        if made is not None:
            return made
        here = _joined(path, where)
        faults.add_of_several(here, f"{here or 'the top'}: {what}")
        less, gone = _without_cause(data, spare, kind, (where, what))
        if less == data:
            return None
        faults.leave_out(_joined(path, gone), is_section=isinstance(_at(data, _steps(gone)), dict))
        data = less


def _attempt(data: Any, spare: Any, kind: type[_S]) -> tuple[_S | None, str, str]:
    """The settings, with spare values where none are, or where what is wrong with them."""
    try:
        return msgspec.convert(_merge(spare, data, ""), kind, strict=True, dec_hook=_typed), "", ""
    except msgspec.ValidationError as error:
        return None, *_stated(str(error))


def _without_cause(
    data: Any, spare: Any, kind: type[msgspec.Struct], wrong: tuple[str, str]
) -> tuple[Any, str]:
    """The same without what is wrong at a place, be it one value of a section; and where that was."""
    where, steps = wrong[0], _steps(wrong[0])
    found = _at(data, steps)
    below = found if isinstance(found, dict) else ()
    tried = [(_put(data, (*steps, key), _LEFT_OUT), f"{where}.{key}".lstrip(".")) for key in below]
    if steps and isinstance(steps[-1], int):  # another item of the list stands in for it: the others stay
        steps = steps[:-1]
        tried += [(_put(data, _steps(where), other), where) for other in _at(data, steps)]
    for less, gone in tried:
        if _attempt(less, spare, kind)[1:] != wrong:
            return less, gone
    return _put(data, steps, _LEFT_OUT), where


def _steps(path: str) -> tuple[object, ...]:
    return tuple(int(place) if place else key for place, key in _STEP.findall(path))


def _joined(section: str, path: str) -> str:
    return section + path if path.startswith("[") else ".".join(step for step in (section, path) if step)


def _at(data: Any, steps: tuple[object, ...]) -> Any:
    """The value at a place; `None` where there is none."""
    for step in steps:
        if isinstance(data, dict):
            data = data.get(step)
        else:
            data = data[step] if isinstance(data, list) and isinstance(step, int) else None
    return data


def _put(data: Any, steps: tuple[object, ...], value: Any) -> Any:
    """The same with another value at a place, or with none where it is left out."""
    if not steps:
        return {} if value is _LEFT_OUT else value
    first, below = steps[0], steps[1:]
    if isinstance(data, list):
        return [_put(one, below, value) if at == first else one for at, one in enumerate(data)]
    if not isinstance(data, dict):
        return data
    changed = {key: _put(one, below, value) if key == first else one for key, one in data.items()}
    if value is _LEFT_OUT and not below:
        changed.pop(first, None)
    return changed


def as_yaml(config: CollectorConfig) -> str:
    """The whole configuration as it holds, with a placeholder for each secret."""
    data = _without_none(msgspec.to_builtins(config, enc_hook=str))
    return redact(yaml.safe_dump(data, sort_keys=False), texts_in(config))


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return [_without_none(one) for one in data] if isinstance(data, list | tuple) else data


def shipped() -> str:
    """The text of the configuration that comes with Overwatch."""
    packed = resources.files("overwatch") / "collector.yaml"
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "otel" / "collector.yaml").read_text(encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    # The person who starts this names it: a pipe, as of `<(...)`, has a writer, and bytes are bounded.
    try:
        with path.open("rb") as file:
            data = file.read(SMALL_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if len(data) > SMALL_BYTES:
        raise ConfigError(f"cannot read {path}: larger than the {SMALL_BYTES} bytes that it may have")
    return _parse(text, str(path))


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        data = read(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not YAML: {error}") from error
    if data is None:
        return {}
    data = data.value if isinstance(data, Number) else data
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: the top is a {type(data).__name__}; it must be a mapping of {_TOP}")
    return data


def _one(item: str) -> dict[str, Any]:
    """`a.b.c=value` as nested mappings; the value is YAML."""
    keys, equals, text = item.partition("=")
    names = keys.split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set {item!r} is not path=value; write e.g. exporters.prometheus.endpoint=...")
    try:
        value: Any = read(text)
    except ValueError as error:
        raise ConfigError(f"--set {keys}: the value is not YAML, put it in quotes: {error}") from error
    for name in reversed(names):
        value = {name: value}
    return {str(key): below for key, below in value.items()}


def _merge(base: Any, over: Any, path: str, *, replace: bool = True) -> Any:
    """`over` laid over `base`; an empty section keeps what is below it, an empty pipeline leaves it out."""
    if over is None and path.rpartition(".")[0] == _PIPELINES:
        return None
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return base if over is None and isinstance(base, dict) else over
    merged = {} if replace and path in _WHOLE else dict(base)
    for key, value in over.items():
        here = f"{path}.{key}" if path else str(key)
        merged[key] = _merge(base.get(key), value, here, replace=replace)
    return merged


def _known(data: Any, kind: msgspec.inspect.Type, path: str, faults: _Faults) -> Any:
    """`data` with those keys alone that are fields of its type."""
    kind = _plain(kind)
    if isinstance(data, list):
        return [
            _known(value, _below(kind, at, path), f"{path}[{at}]", faults) for at, value in enumerate(data)
        ]
    if not isinstance(kind, msgspec.inspect.StructType) or not isinstance(data, dict):
        return data
    fields, known = {field.encode_name: field.type for field in kind.fields}, dict[Any, Any]()
    for key, value in data.items():
        here = f"{path}.{key}" if path else str(key)
        if path in ROOTS and "/" in str(key):
            try:
                fields[key] = msgspec.inspect.type_info(component_of(path, str(key)).config)
            except ValueError as error:
                faults.add(here, f"{here}: {error}")
                continue
        elif key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(fields))}"
            faults.add(here, f"{here}: unknown key; {hint}")
            continue
        known[key] = _known(value, fields[key], here, faults)
    return known


def _expand_all(data: Any, kind: msgspec.inspect.Type, path: str, faults: _Faults) -> Any:
    """`data` with what its variables stand for, without the values that have none."""
    if isinstance(data, dict):
        expanded = {
            key: _expand_all(value, _below(kind, key, path), f"{path}.{key}" if path else str(key), faults)
            for key, value in data.items()
            if _named(key, path, faults)
        }
        return {key: value for key, value in expanded.items() if value is not _LEFT_OUT}
    if isinstance(data, list):
        items = [
            _expand_all(one, _below(kind, at, path), f"{path}[{at}]", faults) for at, one in enumerate(data)
        ]
        return _LEFT_OUT if _LEFT_OUT in items else items
    try:
        return _leaf(data, kind, path)
    except ConfigError as error:
        faults.add(path, str(error))
        return _LEFT_OUT


def _named(key: Any, path: str, faults: _Faults) -> bool:
    """Whether a key can be written into files and logs; a fault where it cannot."""
    try:
        _sayable(key, path)
    except ConfigError as error:
        faults.add(path, str(error))
        return False
    return True


def _leaf(data: Any, kind: msgspec.inspect.Type, path: str) -> Any:
    """The value that a text, a number or another leaf stands for; raises `ConfigError`."""
    if isinstance(data, Number):
        return data.text if _is_word(kind) else _finite(data.value, path)
    if not isinstance(data, str):
        return data
    text = _sayable(expand(data, os.environ, path), path)
    if "$" not in data:
        return text
    # A value that is one variable alone takes the type that its text has in YAML, as in otelcol; a secret
    # is its text as it stands, be it `1e5` or `null`, and so is a word of some, be it `1.3`.
    alone = data.startswith("${") and _closing(data, 2) == len(data) - 1
    stays = not alone or _plain(kind) == _SECRET or _is_word(kind)
    return text if stays else _of_variable(text, kind, path)


def _of_variable(text: str, kind: msgspec.inspect.Type, path: str) -> Any:
    """What the text of a variable stands for; itself where a text is wanted, or where it is no YAML."""
    try:
        value = read(text)
    except ValueError:
        return text
    if value is not None and isinstance(_plain(kind), _TEXTS):
        return text
    return _leaf(value, kind, path) if isinstance(value, Number) else _plain_numbers(value)


def _plain_numbers(value: Any) -> Any:
    """The same without how its numbers are written."""
    if isinstance(value, dict):
        return {key: _plain_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(one) for one in value]
    return value.value if isinstance(value, Number) else value


def _finite(value: float, path: str) -> float:
    """A number that can be reckoned with; raises `ConfigError` for others."""
    if not abs(value) <= _MOST:
        raise ConfigError(f"{path}: {value} is no number to go by; write one of at most {_MOST}")
    return value


def _sayable(text: _T, path: str) -> _T:
    """A text that can be written into files and logs, or what is none; raises `ConfigError` for others."""
    if not isinstance(text, str):
        return text
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{path}: the text is not UTF-8, or has a NUL; write it without")
    return text


def _is_word(kind: msgspec.inspect.Type) -> bool:
    """Whether a value of this type is one of some words, whatever they look like."""
    return isinstance(_plain(kind), msgspec.inspect.LiteralType)


def _below(kind: msgspec.inspect.Type, key: object, path: str) -> msgspec.inspect.Type:
    """The type of a field of what is at `path`, or of the items of a list or mapping."""
    kind = _plain(kind)
    if isinstance(kind, msgspec.inspect.StructType):
        if path in ROOTS and "/" in str(key):
            return msgspec.inspect.type_info(component_of(path, str(key)).config)
        return next((field.type for field in kind.fields if field.encode_name == key), _ANY)
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return kind.item_type
    return kind.value_type if isinstance(kind, msgspec.inspect.DictType) else _ANY


def _plain(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The type that a value has where it is not `None`."""
    if not isinstance(kind, msgspec.inspect.UnionType):
        return kind
    return next((one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)), kind)


def expand(text: str, env: Mapping[str, str], path: str) -> str:
    """`${env:NAME:-default}` replaced, defaults may nest; `$$` is a dollar sign. Raises `ConfigError`.

    >>> expand("${env:A:-${env:B:-/x}/y}/z", {"B": "/b"}, "p")
    '/b/y/z'
    """
    out: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("$$", at):
            out.append("$")
            at += 2
        elif text.startswith("${", at):
            end = _closing(text, at + 2)
            if end is None:
                raise ConfigError(f"{path}: a '${{' has no '}}'; write $$ for a dollar sign")
            out.append(_variable(text[at + 2 : end], env, path))
            at = end + 1
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


def _closing(text: str, at: int) -> int | None:
    depth = 1
    for index in range(at, len(text)):
        depth += text.startswith("${", index) - (text[index] == "}")
        if depth == 0:
            return index
    return None


def _variable(inner: str, env: Mapping[str, str], path: str) -> str:
    name, has_default, default = inner.removeprefix("env:").partition(":-")
    if not _NAME.match(name):
        raise ConfigError(
            f"{path}: ${{{inner}}} names no variable; write ${{env:NAME}} or ${{env:NAME:-default}}"
        )
    value = env.get(name)
    if value:
        return value
    if not has_default:
        raise ConfigError(
            f"{path}: environment variable {name} is not set; set it or write ${{env:{name}:-default}}"
        )
    return expand(default, env, path)


def _typed(kind: type, value: Any) -> Any:
    """Folders and files, where `~` is the user's home, and secrets."""
    if kind is Path and isinstance(value, str) and value:
        try:
            return Path(value).expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(f"{value!r} is in the home of nobody here; write the whole path") from error
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    if kind is Secret:
        raise TypeError(f"a secret is a text; put this {type(value).__name__} in quotes")
    raise TypeError(f"{value!r} is not a path")


def _stated(message: str) -> tuple[str, str]:
    """The path of a message of msgspec, as in the file, and what it states of it."""
    what, found, where = message.rpartition(" - at `$")
    if not found and message.endswith("`") and " - at `key` in `$" in message:
        what, found, where = message.rpartition(" - at `key` in `$")
        what = f"{what} for a key"
    return (where.rstrip("`").lstrip("."), what) if found else ("", message)

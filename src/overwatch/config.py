"""The collector's configuration: the shipped file, a user's file over it, the environment, `--set`.

Rules: an unknown key fails with its path and the nearest known one; nothing is guessed. Assembles; knows
the collector's types and nothing of how they work.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from overwatch.collector.exporters.further import KEY, NEWER, Further, section_of, type_of
from overwatch.collector.secrets import Secret, redact, texts_in
from overwatch.collector.settings import CollectorConfig, Exporters, listeners, problems
from overwatch.config_yaml import Number, read

_S = TypeVar("_S", bound=msgspec.Struct)
_T = TypeVar("_T")
_ROOTS: Final = ("receivers", "exporters", "extensions", "service", "diagnosis")
_PIPELINES: Final = "service.pipelines"
_WHOLE: Final = frozenset({_PIPELINES, "service.extensions"})
"""Sections that a user's file replaces rather than amends."""

_SECRET: Final = msgspec.inspect.type_info(Secret)
_ANY: Final = msgspec.inspect.AnyType()
_TEXTS: Final = (msgspec.inspect.StrType, msgspec.inspect.CustomType)
_MOST: Final = 2**53
"""The largest number that a file and every program that reads it agree on."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the path, the value and the fix."""


def load(path: Path | None, sets: Sequence[str]) -> CollectorConfig:
    """The shipped configuration, `path` over it, each `a.b.c=value` over that; raises `ConfigError`."""
    return load_named(path, sets)[0]


def load_named(path: Path | None, sets: Sequence[str]) -> tuple[CollectorConfig, frozenset[str]]:
    """As `load`, with the endpoints that a person named, be it as they are shipped."""
    data, given = _parse(shipped(), "the shipped configuration"), dict[str, Any]()
    if path is not None:
        given = _by_our_names(_read(path))
        data = _merge(data, given, "")
    for item in sets:
        one = _by_our_names(_one(item))
        data, given = _merge(data, one, "", replace=False), _merge(given, one, "", replace=False)
    kind = msgspec.inspect.type_info(CollectorConfig)
    _known(data, kind, "")
    config = _made(_expand_all(data, kind, ""))
    found = [f"{where}: {what}" for where, what in problems(config)]
    if found:
        raise ConfigError("\n".join(found))
    return config, frozenset(one.endpoint for one in listeners(config) if _names(given, one.path))


def _names(given: Any, path: str) -> bool:
    """Whether a person's own configuration has a value at a path."""
    for key in path.split("."):
        given = given.get(key) if isinstance(given, dict) else None
    return given is not None


def _by_our_names(data: dict[str, Any]) -> dict[str, Any]:
    """The same with each exporter by our name for it; raises `ConfigError` for one that is there twice."""
    found = dict(data)
    if isinstance(exporters := data.get("exporters"), dict):
        found["exporters"] = {}
        for key, section in exporters.items():
            own = _our_name(key)
            if own in found["exporters"]:
                raise ConfigError(f"exporters.{key}: {own} is the same exporter; leave one of the two out")
            found["exporters"][own] = section
    service = data.get("service")
    if isinstance(service, dict) and isinstance(lines := service.get("pipelines"), dict):
        found["service"] = {**service, "pipelines": {name: _line(line) for name, line in lines.items()}}
    return found


def _line(line: Any) -> Any:
    """A pipeline with its exporters by our names."""
    if isinstance(line, dict) and isinstance(exporters := line.get("exporters"), list):
        return {**line, "exporters": [_our_name(name) for name in exporters]}
    return line


def _our_name(name: Any) -> Any:
    kind, slash, own = str(name).partition("/")
    return f"{NEWER[kind]}{slash}{own}" if kind in NEWER else name


def _made(data: Any) -> CollectorConfig:
    """The configuration of plain values; raises `ConfigError`."""
    given = data.get("exporters")
    exporters = given if isinstance(given, dict) else {}
    plain = {key: value for key, value in exporters.items() if "/" not in str(key)}
    config = _converted({**data, "exporters": plain} if exporters else data, CollectorConfig, "")
    named: dict[str, dict[str, Any]] = {}
    for key in [key for key in exporters if key not in plain]:
        section = _converted(exporters[key] or {}, section_of(key), f"exporters.{key}")
        named.setdefault(type_of(key), {})[key] = section
    replace = msgspec.structs.replace
    return replace(config, exporters=replace(config.exporters, further=Further(**named)))


def _converted(data: Any, kind: type[_S], path: str) -> _S:
    try:
        return msgspec.convert(data, kind, strict=True, dec_hook=_typed)
    except msgspec.ValidationError as error:
        raise ConfigError(_said(str(error), path)) from error


def as_yaml(config: CollectorConfig) -> str:
    """The whole configuration as it holds, with a placeholder for each secret."""
    data = _without_none(msgspec.to_builtins(config, enc_hook=str))
    for sections in data["exporters"].pop(KEY).values():
        data["exporters"] |= sections
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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
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
        raise ConfigError(f"{name}: the top is a {type(data).__name__}; it must be a mapping of {_ROOTS}")
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


def _known(data: Any, kind: msgspec.inspect.Type, path: str) -> None:
    """Check that every key below `data` is a field of its type."""
    kind = _plain(kind)
    if isinstance(data, list):
        for at, value in enumerate(data):
            _known(value, _below(kind, at), f"{path}[{at}]")
    if not isinstance(kind, msgspec.inspect.StructType) or not isinstance(data, dict):
        return
    fields = {field.encode_name: field.type for field in kind.fields}
    for key, value in data.items():
        here = f"{path}.{key}" if path else str(key)
        if kind.cls is Exporters and "/" in str(key):
            try:
                fields[key] = msgspec.inspect.type_info(section_of(str(key)))
            except ValueError as error:
                raise ConfigError(f"{here}: {error}") from error
        elif key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(fields))}"
            raise ConfigError(f"{here}: unknown key; {hint}")
        _known(value, fields[key], here)


def _expand_all(data: Any, kind: msgspec.inspect.Type, path: str) -> Any:
    if isinstance(data, dict):
        return {
            _sayable(key, path): _expand_all(value, _below(kind, key), f"{path}.{key}" if path else str(key))
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [_expand_all(value, _below(kind, at), f"{path}[{at}]") for at, value in enumerate(data)]
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
    return _expand_all(value, kind, path) if isinstance(value, Number) else _plain_numbers(value)


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


def _below(kind: msgspec.inspect.Type, key: object) -> msgspec.inspect.Type:
    """The type of a field, or of the items of a list or mapping."""
    kind = _plain(kind)
    if isinstance(kind, msgspec.inspect.StructType):
        if kind.cls is Exporters and "/" in str(key):
            return msgspec.inspect.type_info(section_of(str(key)))
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


def _said(message: str, path: str) -> str:
    """The message of msgspec with the path first, as in the file; `path` is where its `$` stands."""
    what, found, where = message.rpartition(" - at `$")
    if not found and message.endswith("`") and " - at `key` in `$" in message:
        what, found, where = message.rpartition(" - at `key` in `$")
        what = f"{what} for a key"
    if not found:
        return f"{path}: {message}" if path else message
    return f"{(path + where.rstrip('`')).lstrip('.') or 'the top'}: {what}"

"""Strings that try to steer a terminal, break a layout or be read as markup; and snapshots full of them."""

import dataclasses
import itertools
import random
from typing import Any, TypeVar

import msgspec

from overwatch.snapshot import Snapshot

T = TypeVar("T")

_STARTS = ("", "ok ", "\u6f22\u5b57", "\u00e9\u0301\u0301\u0301\u0301", "\u202e")
_PAYLOADS = (
    "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;title\x07", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "\x1b[2J",
    "\x1b[31mred", "\x1b[?1049l", "\x1b[6n", "\x1bP+q544e\x1b\\", "\x1b_Gi=1;AAAA\x1b\\", "\x1b^pm\x1b\\",
    "\x1bc", "\x1b(0", "\x9b2J", "\x9d0;t\x9c", "\x90q\x9c", "\x84\x85\x88", "\x00", "\x07\x08\x0b\x0c",
    "\x7f", "\r\n", "\n\n\n", "\t\t", "\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069",
    "\u200b\u200c\u200d\ufeff", "a" + "\u0300" * 40,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u2714\ufe0f\u26a0\ufe0f",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\uff5f\uff57\uff49\uff44\uff45\uff60", "\ufdfa",
    "\U0001242b\U0001242b\U0001242b\U0001242b", "\ud83d", "\udfff", "\ue000", "\U000e0001", "[/]", "[bold",
    "[bold red]x[/bold red]", "[link=http://evil]x[/link]", "[@click=app.quit]x[/]", "[on red]",
    "[/not-open]", "\\[escaped]", "$text{x}", "%s%n%x", "{0.__class__}", "{{", "'; DROP TABLE--",
    "../../etc/passwd", "<img onerror=alert(1)>", "&amp;", "-rf", "NaN", "null", "0x1p-1074", " " * 200,
    "x" * 5000, "\u2013" * 300, "\u2500\u2502\u250c", "\u2028\u2029", "\ufdd0\uffff",
)  # fmt: skip


def corpus(count: int) -> list[str]:
    """So many different strings: every payload with every start, then joined in pairs, then mutated."""
    found = dict.fromkeys(start + payload for start in _STARTS for payload in _PAYLOADS)
    found |= dict.fromkeys(a + b for a, b in itertools.product(_PAYLOADS, repeat=2) if len(a + b) < 200)
    dice = random.Random(7)  # noqa: S311
    while len(found) < count:
        found[noise(dice)] = None
    return list(found)[:count]


def noise(dice: random.Random, longest: int = 40) -> str:
    """A random string over everything that a terminal may misread."""
    ranges = (
        (0, 0x20), (0x20, 0x7F), (0x7F, 0xA0), (0x300, 0x370), (0x2000, 0x2070), (0x4E00, 0x4F00),
        (0xD800, 0xE010), (0xFE00, 0xFE10), (0x1F1E6, 0x1F200), (0x1F600, 0x1F650), (0xE0000, 0xE0080),
    )  # fmt: skip
    return "".join(chr(dice.randrange(*dice.choice(ranges))) for _ in range(dice.randrange(longest)))


def poisoned(value: T, text: str) -> T:
    """The same with `text` behind every string in it: names, messages, states, whatever they are."""
    return _poisoned(value, text)  # type: ignore[no-any-return]  # the same type as it came


def _poisoned(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return text if value == "" else text + value
    if isinstance(value, tuple):
        return tuple(_poisoned(one, text) for one in value)
    if isinstance(value, dict):
        return {key: _poisoned(one, text) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: _poisoned(getattr(value, one.name), text) for one in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, msgspec.Struct):
        named = {name: _poisoned(getattr(value, name), text) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **named)
    return value


def poisoned_snapshot(snapshot: Snapshot, text: str) -> Snapshot:
    """A snapshot whose every string is foreign, but for what decides how a line is read at all."""
    bad = poisoned(snapshot, text)
    slots = {f"{text}{name}": name for name in snapshot.run.slots}
    envs = tuple(
        msgspec.structs.replace(env, slots={f"{text}{name}": slot for name, slot in env.slots.items()})
        for env in bad.envs
    )
    run = msgspec.structs.replace(bad.run, slots=tuple(slots), blueprints={f"{text}x": text})
    feed = tuple(
        msgspec.structs.replace(line, fields={f"{text}{name}": value for name, value in line.fields.items()})
        for line in bad.feed
    )
    actions = {f"{text}{name}": share for name, share in bad.aggregates.actions.items()}
    totals = msgspec.structs.replace(bad.aggregates, actions=actions)
    return msgspec.structs.replace(bad, envs=envs, run=run, feed=feed, aggregates=totals)

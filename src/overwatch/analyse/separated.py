"""Rows as CSV that a spreadsheet takes for nothing but text and numbers. Pure.

Rules, as OWASP advises against CSV injection: a text that begins with a character that may start a formula
gets an apostrophe before it, also one that has apostrophes already, so that taking one away gives back the
text; a text that holds any separator is quoted; numbers stay as they are. Must not know columns.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

Value: TypeAlias = str | float | int | None
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_QUOTED: Final = re.compile('[",;|\t\r\n]|^ | $')


def csv_line(values: Iterable[Value], *, is_guarded: bool = True) -> str:
    r"""One line without its end; a missing value is empty. `is_guarded` keeps a formula from being one.

    >>> csv_line(["=1+1", "a,b", -1.5, 3, None, "'-x"])
    '\'=1+1,"a,b",-1.5,3,,\'\'-x'
    """
    return ",".join(_cell(value, is_guarded=is_guarded) for value in values)


def _cell(value: Value, *, is_guarded: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = f"'{value}" if is_guarded and _FORMULA.match(value) else value
    if not _QUOTED.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'

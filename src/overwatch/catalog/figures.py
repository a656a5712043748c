"""How a number is written where there is little room, wherever one is: on screens, in sentences. Pure."""

import math
from typing import Final

PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LARGE: Final = ((1e12, "T"), (1e15, "P"), (1e18, "E"))


def number(value: float, spec: str, width: int) -> str:
    """`value` in at most `width` cells, four at least: by `spec`, else with an SI prefix or an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    text = format(value, spec)
    if value and spec.endswith(".2f") and not float(text):
        # A small value is not nothing: one digit more, where there is room without the leading zero.
        finer = no_zero(format(value, spec.replace(".2f", ".3f")))
        text = finer if len(finer) <= width and float(finer) else text
    if len(text) <= width:
        return text
    if len(no_zero(text)) <= width:
        return no_zero(text)
    sign = "+" if spec.startswith("+") else ""
    for digits in (2, 1, 0):
        text = _prefixed(value, f"{sign}.{digits}f")
        if len(text) <= width:
            return text
    text = format(value, f"{sign}.0e").replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    if len(text) <= width:
        return text
    # A sign, a digit and an exponent of two digits are wider than four cells: -1e11 is -.1T there.
    parts = (
        (no_zero(f"{value / scale:.{digits}f}"), letter) for scale, letter in _LARGE for digits in (1, 0)
    )
    shorter = (part + letter for part, letter in parts if len(part) < width and float(part))
    return next(shorter, text.lstrip("+"))


def _prefixed(value: float, spec: str) -> str:
    for scale, letter in PREFIXES:
        if abs(value) >= scale:
            return format(value / scale, spec) + letter
    return format(value, spec)


def no_zero(text: str) -> str:
    """Without the zero before the point: `0.94` becomes `.94`, `-0.21` becomes `-.21`."""
    for sign in ("", "+", "-"):
        if text.startswith(f"{sign}0."):
            return sign + text[len(sign) + 1 :]
    return text

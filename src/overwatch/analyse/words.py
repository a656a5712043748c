"""How runs of a comparison, and what lies between two values, are put into words. Pure."""


def letter(place: int) -> str:
    """What a run of a comparison is called: the first `A`."""
    return chr(ord("A") + place)


def change(first: float | None, second: float | None) -> str:
    """How much the second is more than the first, in per cent of it; a dash where that says nothing."""
    if first is None or second is None or not first or first * second < 0:
        return "–"
    share = second / first - 1
    return f"{share:+.1%}" if abs(share) < 10 else f"×{second / first:,.1f}"

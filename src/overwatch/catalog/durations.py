"""How a length of time is written, wherever one is: in findings, verdicts and on screens. Pure."""


def duration(seconds: float, *, coarse: bool = False) -> str:
    """`0.84s`, `41s`, `4m12s`, `1h12m`, `2d3h`; `coarse` leaves out the seconds beyond a minute."""
    if seconds < 1:
        return f"{max(0.0, seconds):.2f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m" if coarse or not rest else f"{minutes}m{rest:02d}s"
    hours, rest = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h" if not rest else f"{hours}h{rest:02d}m"
    days, rest = divmod(hours, 24)
    return f"{days}d" if not rest else f"{days}d{rest}h"

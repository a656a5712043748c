"""How the proxy return and the true one stand to one another: a state, its words, the gap. Only formats."""

from overwatch.catalog.goodhart import GAP, PROXY, TRUE
from overwatch.diagnose import Judged
from overwatch.diagnose.hacking import LEAST, WORDS
from overwatch.snapshot import Parting
from overwatch.state.policy import Series
from overwatch.state.run import RunState


def parting_view(state: RunState, judged: Judged) -> Parting | None:
    """What a view may know of it; `None` where neither return is reported."""
    proxy, true = state.policy.get(PROXY.name), state.policy.get(TRUE.name)
    if proxy is None and true is None:
        return None
    known, pairs, gap = judged.assessment.policy.hacking, state.pairs.total, state.policy.get(GAP.name)
    way = known.stands or known.way
    word, text = _state(proxy, true, pairs, known.stands)
    if word == "together" and way is not None:
        word, text = "parting", f"not held long enough yet: {WORDS[way]}"
    return Parting(
        state=word,
        text=text,
        gap=None if gap is None else gap.value,
        pairs=pairs,
        needed=LEAST,
        way=way,
        factors=known.factors,
    )


def _state(proxy: Series | None, true: Series | None, pairs: int, stands: str | None) -> tuple[str, str]:
    if stands is not None:
        return "parted", WORDS[stands]
    if not _differs(true):
        return "no-true-signal", "no true signal"
    if not _differs(proxy):
        return "no-true-signal", "no proxy beside the true return"
    if pairs < LEAST:
        return "waiting", f"{pairs} of {LEAST} updates"
    return "together", "the true return follows"


def _differs(series: Series | None) -> bool:
    """Whether it is reported at all, and is not the same in all updates."""
    return series is not None and series.highest is not None and series.highest != series.lowest

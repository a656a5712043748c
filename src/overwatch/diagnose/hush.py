"""Findings where few can be found anew: of numbers that were thinned only the ends can be told. Pure."""

from collections.abc import Collection

from msgspec.structs import replace

from overwatch.diagnose.assess import Assessment, Judged
from overwatch.diagnose.follow import Followed


def without_new(judged: Judged, before: Assessment, known: Collection[str]) -> Judged:
    """A judgement without findings that opened or wait at its tick, but for those of `known` ids."""
    now, earlier = judged.assessment.followed, before.followed.open
    if not now.waiting and now.open.keys() <= earlier.keys():
        return judged
    followed = Followed(
        open={key: item for key, item in now.open.items() if key in earlier or key in known},
        waiting={key: item for key, item in now.waiting.items() if key in known},
        cooling=now.cooling,
    )
    return replace(judged, assessment=replace(judged.assessment, followed=followed))

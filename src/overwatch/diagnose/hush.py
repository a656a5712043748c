"""Findings where none can be found anew: of numbers that were thinned only the ends can be told. Pure."""

from dataclasses import replace

import msgspec

from overwatch.diagnose.assess import Assessment, Judged
from overwatch.diagnose.follow import Followed


def without_new(judged: Judged, before: Assessment) -> Judged:
    """A judgement without the findings that opened, or began to wait, at its tick."""
    now, earlier = judged.assessment.followed, before.followed
    fresh = now.open.keys() - earlier.open.keys()
    if not fresh and not now.waiting:
        return judged
    known = {key: item for key, item in now.open.items() if key not in fresh}
    followed = Followed(open=known, cooling=now.cooling)
    return replace(judged, assessment=msgspec.structs.replace(judged.assessment, followed=followed))

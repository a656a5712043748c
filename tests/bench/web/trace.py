"""Tasks of a page's main thread in a trace of Chromium's."""

import json
from typing import Any

CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata"]
_TASK = "ThreadControllerImpl::RunTask"


def tasks(trace: bytes) -> list[float]:
    """Processor time of each, in ms; of the renderer that did the most."""
    by_thread = threads(trace)
    return max(by_thread.values(), key=sum)


def threads(trace: bytes) -> dict[tuple[int, int], list[float]]:
    """Of each main thread of a renderer, the processor time of its tasks."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    mains = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    found: dict[tuple[int, int], list[float]] = {}
    for one in events:
        place = (one["pid"], one["tid"])
        if place in mains and one["name"] == _TASK and "tdur" in one:
            found.setdefault(place, []).append(one["tdur"] / 1e3)
    return found

"""Why a recording shows nothing: what came, counted by what became of it.

Must not know who asks.
"""

from collections import Counter

from overwatch.feeds.recording import Recording
from overwatch.journal import Signal
from overwatch.otlp.decode import Decoded, decode_batch
from overwatch.otlp.origin import begins_run
from overwatch.otlp.wire import MalformedBody


def unshown(recording: Recording) -> tuple[str, ...]:
    """One line for the whole, then one a reason, the most frequent first."""
    counts, requests, items = Counter[str](), 0, 0
    for batch in recording.batches():
        if batch.signal is Signal.START:
            continue
        requests += 1
        try:
            decoded = decode_batch(batch)
        except MalformedBody:
            counts["requests that are no protobuf of their signal"] += 1
            continue
        items += decoded.items
        counts.update(_reasons(batch.signal, decoded))
    told = [f"  {count:,} {reason}" for reason, count in counts.most_common() if count]
    return (f"{recording.folder}: {items:,} items in {requests:,} requests, of which no run is made:", *told)


def _reasons(signal: Signal, decoded: Decoded) -> Counter[str]:
    found = Counter[str]()
    if signal is Signal.TRACES:
        found["spans, which are recorded and not shown"] = decoded.items
        return found
    idle = sum(one.origin.is_implied and not begins_run(one.event) for one in decoded.records)
    found["name no run (rl.run.id), and no run begins with them"] = decoded.unattributed + idle
    found["metric points that no row of the catalogue knows"] = decoded.unmapped
    found.update(f"rejected, {problem.reason}: {problem.detail}" for problem in decoded.problems)
    if decoded.items and not (decoded.records or decoded.series or decoded.alive or found.total()):
        found["metric points of Overwatch's own SDK, whose events hold the same"] = decoded.items
    return found

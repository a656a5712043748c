"""What the fold reports of itself: counts of what it did with everything it was given. Must not know runs."""

import msgspec


class TowerStats(msgspec.Struct, kw_only=True):
    """What the fold did with everything it was given."""

    ticks: int = 0
    """Taken since the fold began empty."""
    batches: int = 0
    """Folded since then, start records among them."""
    records: int = 0
    problems: int = 0
    """Malformed or unfoldable records, quarantined."""
    unjudged: int = 0
    """Times that a run could not be judged or shown, for a fault of ours that its numbers found."""
    unattributed: int = 0
    """Records without a run id."""
    unmapped: int = 0
    """Foreign metric points that no catalogue row knows."""
    late: int = 0
    """Points of sums and distributions that came twice, or after a newer one."""
    resets: int = 0
    """Sums and distributions that began anew, for a restart or a gap."""
    overlaps: int = 0
    """Points that two writers sent of one series at once."""
    duplicates: int = 0
    refused_runs: int = 0
    """Records of runs beyond the limit of runs."""
    after_end: int = 0
    """Records of runs that had ended and were evicted."""
    evicted_runs: int = 0
    """Runs that were over and made room."""
    evicted_envs: int = 0
    """Envs that were silent for long, in runs that had as many as they may have."""
    overflowed: int = 0
    """Names and ids beyond what one run, or all of them, may have."""
    last_problem: str | None = None

"""`exporters.otlp_file`: where a recording lies, when its files rotate, what may be kept of it.

Names are those of otelcol's `file` exporter where it has one. Must not know how it is done.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from overwatch.recordings.compaction import Rules

_MIB: Final = 1 << 20
_PIECES: Final = 8
"""Of so many pieces a recording is at least, so that one can go and most is left."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the section; unknown keys are errors."""


class RotationConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.rotation`: whichever comes first begins new files."""

    max_megabytes: int = 64
    """Most MiB of the files that are written to, all signals and their index together."""
    max_minutes: float = 10
    """Longest time of the files that are written to; their numbers are thinned after it at the earliest."""
    max_days: float | None = None
    """Older pieces go, whatever the budget; none do if left out."""

    def __post_init__(self) -> None:
        if self.max_megabytes < 1:
            raise ValueError(f"max_megabytes {self.max_megabytes} is not positive")
        if not self.max_minutes > 0:
            raise ValueError(f"max_minutes {self.max_minutes} is not positive")
        if self.max_days is not None and not self.max_days > 0:
            raise ValueError(f"max_days {self.max_days} is not positive; leave it out to keep all")


class BudgetConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.budget`: beyond it numbers are thinned early, then the oldest pieces go."""

    run_mib: int = 2048
    """Most MiB of one run."""
    folder_mib: int = 10240
    """Most MiB of all runs together."""

    def __post_init__(self) -> None:
        if self.run_mib < 1:
            raise ValueError(f"run_mib {self.run_mib} is not positive")
        if self.folder_mib < self.run_mib:
            raise ValueError(f"folder_mib {self.folder_mib} is less than run_mib {self.run_mib}")


class ThinningConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.thinning`: how numbers grow fewer with age; facts are kept whole."""

    enabled: bool = True
    """Whether age thins numbers; what is beyond the budget is thinned in any case."""
    whole_minutes: float = 10
    """For so long all numbers are kept..."""
    second_hours: float = 6
    """...for so long one a second, then one a minute: of each n, least, most, last, how many were bad."""
    before_s: float = 120
    """All numbers are kept from so many seconds before a finding became true..."""
    after_s: float = 30
    """...to so many seconds after it opened."""

    def __post_init__(self) -> None:
        for name in ("whole_minutes", "second_hours", "before_s", "after_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name)} is less than 0")
        if self.second_hours * 60 < self.whole_minutes:
            raise ValueError(
                f"second_hours {self.second_hours} is less than whole_minutes {self.whole_minutes}"
            )


class OtlpFileConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file`."""

    path: Path
    """The folder of the files and their index."""
    rotation: RotationConfig = RotationConfig()
    """When new files begin."""
    compression: Literal["zstd", "none"] = "zstd"
    """What is done to files once they are rotated."""
    budget: BudgetConfig = BudgetConfig()
    """How much disk is used."""
    thinning: ThinningConfig = ThinningConfig()
    """What is kept of numbers."""

    def __post_init__(self) -> None:
        if self.budget.run_mib < 2 * self.rotation.max_megabytes:
            raise ValueError(
                f"budget.run_mib {self.budget.run_mib} is less than two times rotation.max_megabytes "
                f"{self.rotation.max_megabytes}"
            )

    def rules(self, room: int) -> Rules:
        """The same, as compaction takes it, within so many bytes on disk."""
        folder = min(float(self.budget.folder_mib), room / _MIB)
        return Rules(
            packs=self.compression == "zstd",
            thins=self.thinning.enabled,
            whole_minutes=self.thinning.whole_minutes,
            second_hours=self.thinning.second_hours,
            max_days=self.rotation.max_days,
            piece_mib=min(float(self.rotation.max_megabytes), folder / _PIECES),
            run_mib=min(float(self.budget.run_mib), folder),
            folder_mib=folder,
        )

    def live_bytes(self, room: int) -> int:
        """Size at which new files begin, where a recording may have so many bytes on disk."""
        return max(_MIB, min(self.rotation.max_megabytes * _MIB, room // _PIECES))

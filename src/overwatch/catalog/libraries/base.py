"""The table of names of one library."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from overwatch.catalog.alias import Alias, Library


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What one library calls the policy's numbers."""

    library: Library
    version: str | None
    """The version whose names these are; `None` where it is not known."""
    is_run: bool
    """Whether the names were collected by running the library; else they were read in its source."""
    rows: Mapping[str, tuple[Alias, ...]]
    """By short name of the row, the surest name first."""
    left: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names that look like a row's and are custom numbers, each with the reason; `*` is any part of one."""

    def leaves(self, name: str) -> bool:
        """Whether a name is left out with a reason."""
        return name in self.left or any(fnmatchcase(name, one) for one in self.left)

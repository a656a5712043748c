"""Findings of one kind about one thing, told once: what a reader of a report is shown first. Pure."""

from dataclasses import dataclass
from typing import Final

from overwatch.analyse.story import SEVERITIES, Found, Story

BRIEF_S: Final = 5.0
"""A finding that is not critical and was over sooner is no reason by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Findings of one kind and scope, in order of time."""

    found: tuple[Found, ...]

    @property
    def first(self) -> Found:
        """The earliest."""
        return self.found[0]

    @property
    def code(self) -> str:
        """Their kind."""
        return self.first.finding.code

    @property
    def severity(self) -> str:
        """The worst of them."""
        return max((one.severity for one in self.found), key=SEVERITIES.index)

    @property
    def subject(self) -> str:
        """What they are about: `gpu1`, `env 3`, `env 3, 5 and 2 more`; empty for the run as a whole."""
        about = list(dict.fromkeys(one.finding.subject.id or "" for one in self.found))
        named = ", ".join(word for word in about[:3] if word)
        more = f" and {len(about) - 3} more" if len(about) > 3 else ""
        scope = self.first.finding.subject.scope
        if not named:
            return ""
        return f"{'' if scope == 'gpu' else scope + ' '}{named}{more}"

    @property
    def name(self) -> str:
        """Kind and subject in short, as a row of a figure is called."""
        about = self.first.finding.subject.id if len(self.found) == 1 else None
        return f"{self.code} {about}" if about else self.code

    @property
    def lasted(self) -> float:
        """Seconds in which one of them was open, overlaps counted once."""
        total, end = 0.0, float("-inf")
        for one in self.found:
            total += max(0.0, one.until - max(one.since, end))
            end = max(end, one.until)
        return total

    @property
    def open(self) -> bool:
        """Whether one of them was open at the end."""
        return any(one.open for one in self.found)


def groups(story: Story) -> list[Group]:
    """All findings, grouped, in order of time."""
    table: dict[tuple[str, str, str | None], list[Found]] = {}
    for one in story.findings:
        about = one.finding.subject
        own = None if about.scope == "env" else about.id
        table.setdefault((one.finding.code, about.scope, own), []).append(one)
    return sorted(
        (Group(found=tuple(found)) for found in table.values()), key=lambda group: group.first.since
    )


def lasting(found: list[Group]) -> list[Group]:
    """Without what soon became part of something critical, or was over at once."""
    if all(group.severity != "critical" for group in found):
        return found
    return [group for group in found if group.severity == "critical" or group.lasted >= BRIEF_S]


def foremost(found: list[Group], most: int) -> list[Group]:
    """The worst and longest of them, in order of time; what is merely info comes last."""
    ranked = sorted(found, key=lambda group: (-SEVERITIES.index(group.severity), -group.lasted))
    return sorted(ranked[:most], key=lambda group: group.first.since)

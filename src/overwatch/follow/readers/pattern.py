r"""Lines of text by a regular expression: `step=(?P<step>\d+) loss=(?P<loss>\S+)`.

Rules: the names of its groups are the names of the numbers; a group `name` beside a group `value` takes every
pair on a line. A line that does not match is no row. How the program ended is read from its tracebacks, in
`Ends`. Colours of a terminal are no part of a line.
"""

import re
from collections.abc import Iterator
from typing import Final

from overwatch.follow.base import CUT, Known, Lines, Logged, number
from overwatch.sdk.ending import of_exit

_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_AROUND: Final = " ,;:()[]{}<>|'\"%"
"""What `\\S+` takes of a line beside a number."""
_HEADER: Final = "Traceback (most recent call last)"
_GROUP: Final = "Exception Group Traceback (most recent call last)"
_FILE: Final = re.compile(r'File "[^"]*", line \d+\Z')
"""A frame without a function: a `SyntaxError` of the program itself has no header."""
_ERROR: Final = re.compile(
    r"(?:Fatal Python error|(?:[^\W\d][\w<>]*\.)+[^\W\d]\w*|[A-Z_]\w*)(?:\([\w.]+\))?(?::(?:\s|\Z)|\Z)"
)
"""An exception's class, with its module where it is none of Python's own."""
_FRAME: Final = tuple(" \t|│╭╰├└>+❱")
"""How lines of a traceback begin before its exception: Python's, rich's, loguru's."""
_BOX: Final = "╭─ \t"
_STOPS: Final = ("KeyboardInterrupt", "SignalException", "CancelledError")
_WRAPPERS: Final = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException")
"""What a launcher raises where one of its processes failed, which had its own traceback before."""
_RANK: Final = r"(?:\[[\w,]+\](?:<\w+>)?:? *|\d+: )?"
"""What launchers write before a line of one of several processes."""
_SHELL: Final = (
    rf"{_RANK}(?:\w+: |(?:\S+: line \d+: +|\[\d+\][-+]? +)\d* *|srun: error: \S+: tasks? [-\d,]+: )?"
)
"""What shells and Slurm write before the name of the signal that ended a process."""
_FAULTS: Final = (
    "segmentation fault|bus error|illegal instruction|floating point exception|trace/breakpoint trap"
)
_AFTER: Final = r"(?: \(core dumped\)|  +.*)?\Z"
_LAST: Final = tuple(
    (re.compile(pattern), outcome)
    for pattern, outcome in (
        (r".*\*\*\* (?:JOB|STEP) .* CANCELLED AT .* DUE TO ", "failed"),
        (r".*\*\*\* (?:JOB|STEP) .* CANCELLED AT ", "interrupted"),
        (rf"{_SHELL}(?i:terminated|hangup|interrupt){_AFTER}", "interrupted"),
        (rf"{_SHELL}(?i:killed|aborted|abort|quit|{_FAULTS}){_AFTER}", "failed"),
        (r"srun: error: \S+: tasks? [-\d,]+: (?:Exited with|Out Of Memory)", "failed"),
        (r".*\b(?:[Oo]ut of memory: Killed process|oom_kill event)", "failed"),
        (r"\S+ (?:noticed that process rank|detected that one or more processes exited)", "failed"),
        (rf"{_RANK}(?:terminate called |libc\+\+abi: terminating)", "failed"),
        (rf"{_RANK}(?:[-\d: .]+)?F(?:\d{{4}})? .*\.\w+:\d+\] ", "failed"),
    )
)
"""Lines that shells, kernels, launchers and C++ write where a process ends, and the outcome."""
_ROOT: Final = re.compile(r"\s+(rank|exitcode)\s+: (.*)")
"""What torchrun writes of a process that failed."""
_HARMLESS: Final = ("Exception ignored", "Exception in thread", "Error in atexit")
"""How Python announces a traceback that ends no program."""
_LAST_WORDS: Final = ("wandb:", "swanlab:", "COMET INFO:", "[neptune]", "🏃", "🧪")
"""How lines of trackers begin, which print a summary when the program ends, whichever way."""
_STATUS: Final = re.compile(r"(?:-?\d+)?", re.ASCII)
_LONGEST: Final = 500


class Ends:
    """How a program ended, by the tracebacks in its text, and by what launchers write of its end.

    The newest exception is the end until a row comes after it: then it was caught. Of several processes that
    write one text, which is known by what is before each line, the first exception is the cause.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._prefix: str | None = None
        """What is before each line of the traceback that is being read."""
        self._of: str | None = None
        """The same of the one that is the end."""
        self._before = ""
        """The line before."""
        self._is_group = False
        self._is_harmless = False
        self._is_root = False
        """These lines are of the process that torchrun takes for the cause."""

    def takes(self, line: str) -> bool:
        """Read a line; whether it is part of a traceback, or of another end."""
        before, self._before = self._before, line
        outcome = next((outcome for pattern, outcome in _LAST if pattern.match(line)), None)
        if outcome is not None:
            self._last(line, outcome)
            return True
        self._root(line)
        place = line.find(_HEADER)
        if place >= 0 or (_FILE.search(line) is not None and self._prefix is None):
            place = line.find("File ") if place < 0 else line.find(_GROUP) if _GROUP in line else place
            self._prefix = line[:place].rstrip(_BOX).rstrip("+").rstrip() if place > 0 else ""
            self._is_group = _GROUP in line
            self._is_harmless = any(word in before for word in _HARMLESS)
            return True
        fatal = line.startswith("Fatal Python error")
        if self._prefix is None and not fatal:
            return False
        text = _without(line, self._prefix or "")
        if self._is_group:
            text = text.lstrip().removeprefix("| ")
        if text.startswith(_FRAME) or _ERROR.match(text) is None:
            return text.startswith(_FRAME)
        if not self._is_harmless:
            self._end(text.strip())
        self._prefix = None
        return True

    def undo(self) -> None:
        """A row came: what was raised before was caught."""
        self._known.ending = self._of = None

    def _last(self, line: str, outcome: str) -> None:
        """Take a line of an end; the first end is the cause, but Slurm may give its reason later."""
        ending = self._known.ending
        if ending is None or (ending[0] == "interrupted" and " DUE TO " in line):
            self._known.ending, self._of = (outcome, line[:_LONGEST]), line
        self._prefix = None

    def _root(self, line: str) -> None:
        """Add what torchrun writes of the cause to its exception, which has no message."""
        ending, found = self._known.ending, _ROOT.fullmatch(line)
        self._is_root = line.startswith("Root Cause") or (self._is_root and ending is not None)
        if self._is_root and found and ending and "ChildFailedError:" in (text := ending[1] or ""):
            joint = " " if text.endswith(":") else ", "
            self._known.ending = (ending[0], f"{text}{joint}{found[1]} {found[2]}"[:_LONGEST])

    def _end(self, text: str) -> None:
        name, _, message = (part.strip() for part in text.partition(":"))
        name = name.rpartition(".")[2]
        is_other = self._of is not None and self._of != self._prefix
        if self._known.ending is not None and (is_other or name in _WRAPPERS):
            return
        self._of = self._prefix
        outcome = "interrupted" if name in _STOPS else "failed"
        if name == "SystemExit":
            code = int(message or 0) if _STATUS.fullmatch(message) else message
            outcome = of_exit(code).outcome if code else "ended"
        self._known.ending = (outcome, text[:_LONGEST])


def _without(line: str, prefix: str) -> str:
    """A line without what is before each line of its traceback, e.g. a rank, or a time that has moved on."""
    size = len(prefix)
    is_same = re.sub(r"\d", "0", line[:size]) == re.sub(r"\d", "0", prefix)
    return line[size:].removeprefix(" ") if size and is_same else line


class PatternReader:
    """One text."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.known = Known()
        self._lines = Lines(self.known)
        self._pattern = pattern
        self._is_pairs = {"name", "value"} <= set(pattern.groupindex)
        self._ends = Ends(self.known)
        self._newest: dict[str, float] = {}

    def feed(self, data: bytes) -> Iterator[Logged]:
        """One row a line that matches and has a number."""
        for line in self._lines.feed(data):
            yield from self._row(_COLOURS.sub("", line).rstrip())

    def restart(self) -> None:
        """Lines begin anew."""
        self._lines.restart()

    def end(self) -> list[Logged]:
        """The last words are read; but a number that ends them may be half written."""
        rest = _COLOURS.sub("", self._lines.end()).rstrip()
        if not rest or self._ends.takes(rest):
            return []
        if rest[-1] not in _AROUND and self._pattern.search(rest):
            self.known.problems[CUT] += 1
            return []
        return list(self._row(rest))

    def _row(self, line: str) -> Iterator[Logged]:
        if not line or self._ends.takes(line):
            return
        values = {name: value for name, value in self._pairs(line) if isinstance(value, float)}
        if not values:
            return
        if not line.startswith(_LAST_WORDS) and values != self._newest:
            self._ends.undo()
        self._newest = values
        yield Logged(values=values)

    def _pairs(self, line: str) -> Iterator[tuple[str, float | str | None]]:
        if self._is_pairs:
            found = [(match["name"].strip(), match["value"]) for match in self._pattern.finditer(line)]
        else:
            match = self._pattern.search(line)
            found = list(match.groupdict().items()) if match else []
        for name, word in found:
            value = number(word or "")
            if isinstance(value, str):
                value = number(value.strip(_AROUND))
            if isinstance(value, str):
                self.known.problems[f"values of {name} that are no number"] += 1
            yield name, value


def parse_pattern(text: str) -> re.Pattern[str]:
    """A pattern that names something; raises `ValueError`."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if not pattern.groupindex:
        raise ValueError(f"{text!r} names no number; write groups like (?P<loss>\\S+)")
    return pattern

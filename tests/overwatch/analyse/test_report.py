"""`overwatch report`: one file that a browser shows by itself, with what went wrong on its first screen."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from overwatch.analyse.groups import foremost, groups
from overwatch.analyse.report import report
from overwatch.analyse.story import Story, read_story
from overwatch.snapshot import Snapshot
from tests.overwatch.analyse.browser import opened
from tests.overwatch.simulate.runs import overwatch

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J"


class _Seen(HTMLParser):
    """Tags with their attributes, and whether they nest."""

    VOID = frozenset({"meta", "br", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _seen(page: str) -> _Seen:
    seen = _Seen()
    seen.feed(page)
    assert seen.open == []
    return seen


@pytest.fixture(scope="module")
def page(storm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the run in which much is wrong, written by the command."""
    out = tmp_path_factory.mktemp("report") / "run.html"
    result = overwatch("report", storm, "-o", out)
    assert result.exit_code == 0, result.output
    return out


def test_it_needs_nothing_but_itself(page: Path) -> None:
    """No address, no script, nothing that loads; and a policy that would refuse it."""
    seen = _seen(page.read_text())
    text = page.read_text()

    assert {tag for tag, _ in seen.tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "base",
        "form",
    } == set()
    assert not any(name in ("src", "href", "srcset") for _, told in seen.tags for name in told)
    assert not any(name.startswith("on") for _, told in seen.tags for name in told)
    assert "url(" not in text
    assert "@import" not in text
    policy = next(told["content"] for tag, told in seen.tags if told.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")


def test_the_first_things_said_are_what_when_and_what_to_do(page: Path, story: Story) -> None:
    """Before the first heading of a part: every critical kind with its message and its next step."""
    begin = html.unescape(page.read_text().split("<h2")[0])

    for group in foremost([one for one in groups(story) if one.severity == "critical"], 6):
        finding = group.first.finding
        assert finding.message[1:] in begin
        assert finding.hint[1:] in begin
        assert group.code in begin
    assert f"(update {groups(story)[0].first.update})" in begin


def test_every_part_is_there(page: Path) -> None:
    """Of a run with lanes, envs and slots."""
    headings = re.findall(r"<h2>([^<]+)", page.read_text())

    assert headings == [
        "When", "Findings", "Policy", "Machines", "Worst environments", "Seed lifecycles",
        "Identity and configuration",
    ]  # fmt: skip


def test_a_browser_shows_it_without_a_complaint(page: Path, tmp_path: Path) -> None:
    """And draws every chart."""
    done = opened(page, tmp_path)

    assert done.returncode == 0
    assert done.stdout.count("<svg") == page.read_text().count("<svg") > 15
    assert "CONSOLE" not in done.stderr
    assert "Refused" not in done.stderr


def test_text_of_telemetry_stays_text(storm: Path, tmp_path: Path) -> None:
    """Markup in names, messages and configuration is shown as it was written."""
    story = read_story(storm)
    run = msgspec.structs.replace(story.run, run_id=HOSTILE, task=HOSTILE, reason=HOSTILE)
    story.last = msgspec.structs.replace(story.last, run=run)
    story.facts.config[HOSTILE] = HOSTILE
    for key, found in story.found.items():
        finding = msgspec.structs.replace(found.finding, message=HOSTILE, hint=HOSTILE, factors=(HOSTILE,))
        story.found[key] = replace(found, finding=finding)
    for seed in story.facts.seeds.values():
        seed.blueprint = HOSTILE
    out = tmp_path / "hostile.html"
    out.write_text(report(story))
    seen = _seen(out.read_text())

    assert {tag for tag, _ in seen.tags} & {"script", "img"} == set()
    assert HOSTILE in seen.words
    done = opened(out, tmp_path / "profile")
    assert "<script" not in done.stdout
    assert "<img" not in done.stdout


def test_a_calm_run_says_so(calm: Path) -> None:
    """Without cards of findings."""
    text = report(read_story(calm))

    assert "Nothing was found wrong" in text
    assert 'class="found"' not in text


def test_a_run_of_one_snapshot_has_a_report(storm: Path, tmp_path: Path) -> None:
    """With nothing to draw curves of; and a run that told nothing but its name."""
    first = (storm / "snapshots.jsonl").read_bytes().splitlines()[0]
    (tmp_path / "one.jsonl").write_bytes(first + b"\n")
    told = msgspec.json.decode(first, type=Snapshot)
    bare = Snapshot(time=told.time, run=msgspec.structs.replace(told.run, started=None), link=told.link,
                    verdict=told.verdict)  # fmt: skip
    (tmp_path / "bare.jsonl").write_bytes(msgspec.json.encode(bare) + b"\n")

    for name in ("one.jsonl", "bare.jsonl"):
        _seen(report(read_story(tmp_path / name)))


def test_the_same_recording_gives_the_same_page(storm: Path, page: Path) -> None:
    """To the byte."""
    assert report(read_story(storm)) + "\n" == page.read_text()


def test_it_is_printed_or_written_where_asked(
    storm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-o -` prints; without `-o` the file is called as the run is."""
    monkeypatch.chdir(tmp_path)

    assert overwatch("report", storm / "snapshots.jsonl", "-o", "-").stdout.startswith("<!doctype html>")
    assert overwatch("report", storm / "snapshots.jsonl").exit_code == 0
    assert (tmp_path / "storm.html").is_file()


def test_what_cannot_be_written_is_said(storm: Path, tmp_path: Path) -> None:
    """A path below a file; a recording that is none."""
    (tmp_path / "file").touch()
    below = overwatch("report", storm / "snapshots.jsonl", "-o", tmp_path / "file" / "run.html")

    assert (below.exit_code, "cannot be written" in below.stderr) == (2, True)
    assert overwatch("report", tmp_path, "-o", tmp_path / "run.html").exit_code == 2
    assert not (tmp_path / "run.html").exists()

"""`overwatch report`: one file that a browser shows by itself, with what went wrong on its first screen."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from overwatch.analyse.findings import SEVERITIES, foremost, groups, subject_of
from overwatch.analyse.kept import kept, kept_of
from overwatch.analyse.page import table, text
from overwatch.analyse.report import policy, report
from overwatch.analyse.run_history import RunHistory
from overwatch.catalog.policy import KL
from overwatch.catalog.runbooks import runbook
from overwatch.catalog.titles import title
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.snapshot import Snapshot
from overwatch.snapshot.history import HistoryQuery
from overwatch.state.past import Past
from tests.overwatch.analyse.browser import drawn
from tests.overwatch.analyse.reading import read_history
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


def written(path: Path) -> str:
    """The report of the newest run of a recording."""
    return report(read_history(path), kept(open_input(path), read_history(path)))


def test_it_needs_nothing_but_itself(page: Path) -> None:
    """No address, no script but its own, nothing that loads; and a policy that would refuse it."""
    seen = _seen(page.read_text())
    whole = page.read_text()

    assert {tag for tag, _ in seen.tags} & {
        "img",
        "iframe",
        "object",
        "base",
        "form",
    } == set()
    loaded = [
        (tag, value)
        for tag, reported in seen.tags
        for name, value in reported.items()
        if name in ("src", "href", "srcset")
    ]
    assert loaded == [("link", "data:,"), ("a", "#main")]
    assert [reported for tag, reported in seen.tags if tag == "script"] == [
        {"type": "text/plain", "id": "recorded"},
        {"type": "module"},
    ]
    assert not any("style" in reported for _, reported in seen.tags)
    assert not any(name.startswith("on") for _, reported in seen.tags for name in reported)
    assert "url(" not in whole
    assert "@import" not in whole.partition("<style>")[2].partition("</style>")[0]
    policy = next(reported["content"] for tag, reported in seen.tags if reported.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in str(policy)


def test_the_first_things_shown_are_what_when_and_what_to_do(page: Path, run_history: RunHistory) -> None:
    """Before the first heading of a part: every critical kind with its message and its next step."""
    begin = html.unescape(page.read_text().split("<h2")[0])

    for group in foremost([one for one in groups(run_history.findings) if one.severity == "critical"], 6):
        finding = group.first.finding
        assert finding.message[1:] in begin
        assert finding.hint[1:] in begin
        assert group.code in begin
    assert f"(update {groups(run_history.findings)[0].first.update})" in begin


def test_every_part_is_there(page: Path) -> None:
    """Of a run with lanes, envs and slots."""
    headings = re.findall(r"<h2>([^<]+)", page.read_text())

    assert headings == [
        "What stood at the end", "When", "Findings", "Policy", "Machines", "Worst environments",
        "Seed lifecycles", "Best episodes",
        "Identity and configuration",
    ]  # fmt: skip


def _text_of(part: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", part))).strip()


def test_titles_are_words_and_codes_stand_beside_them(page: Path, run_history: RunHistory) -> None:
    """Headings of cards, names in the figure, the table: a code is only in small beside its words."""
    whole = page.read_text()
    cards = re.findall(r"<h3>(.*?)</h3>", whole)
    figure = re.findall(r'class="name">([^<]*)', whole)
    listing = whole[whole.index('id="findings"') :].split("<details")[0]
    banner = whole[whole.index('class="card banner') :].split("</div>")[0]
    small = re.findall(r"<small>([^<]*)</small>", "".join(cards))
    words = "".join(re.sub(r"<small>.*?</small>", "", card) for card in cards)

    assert set(small) == {one.finding.code for one in run_history.findings} != set()
    for part in (words, "".join(figure), listing, banner):
        assert not [code for code in set(small) if code in part]
    for group in groups(run_history.findings):
        assert title(group.code) in words


def test_what_stood_at_the_end_is_listed_the_worst_first(page: Path, run_history: RunHistory) -> None:
    """What was open then and nothing else, each with its words, its subject and its beginning."""
    part = page.read_text()
    part = part[part.index('id="standing"') :].split("</section>")[0]
    rows = [_text_of(f"<tr{row}") for row in part.split("<tr")[2:]]
    stood = [one for one in run_history.findings if one.open and one.severity != "info"]
    levels = [SEVERITIES.index(row.split()[0]) for row in rows]

    assert len(rows) == len(stood) > 1
    assert levels == sorted(levels, reverse=True)
    for one in stood:
        assert any(title(one.finding.code) in row and one.finding.message in row for row in rows)


@pytest.mark.parametrize(
    ("outcome", "heading"), [("completed", "What stood at the end"), (None, "What stands")]
)
def test_nothing_that_cleared_stood(run_history: RunHistory, outcome: str | None, heading: str) -> None:
    """A run that got well again states that nothing was open; one that goes on has no end yet."""
    run_history.last = msgspec.structs.replace(
        run_history.last, run=msgspec.structs.replace(run_history.run, outcome=outcome)
    )
    for key, found in run_history.found.by_key.items():
        run_history.found.by_key[key] = replace(found, open=False)
    part = _text_of(report(run_history, b"").partition('id="standing">')[2].split("</section>")[0])

    assert part == f"{heading} Nothing was open."


def test_evidence_is_no_cause_and_is_shown_of_each(page: Path, run_history: RunHistory) -> None:
    """What a kind means and what it was concluded from have headings of their own; envs are not mixed."""
    begin = _text_of(page.read_text().split("<h2")[0])

    for group in foremost([one for one in groups(run_history.findings) if one.severity == "critical"], 6):
        book = runbook(group.code)
        assert book is not None
        assert f"means {book.means}" in begin
        for one in group.found[:3]:
            own = [factor for factor in one.finding.factors if factor != one.finding.message]
            about = f"{subject_of(one)}: " if len(group.found) > 1 else "evidence "
            assert not own or about + own[0] in begin
    assert " why " not in begin


def test_every_row_of_a_table_has_a_cell_for_each_heading() -> None:
    """One too few would put all that follows under a wrong heading: it is an error, not a page."""
    cells = (text("a"), text("b"))

    assert "<th>second</th>" in table(("first", "second"), [cells])
    assert "<th>first</th>" in table(("first", "second"), [])
    for wrong in (("first",), ("first", "second", "third")):
        with pytest.raises(ValueError, match="a row of 2 cells"):
            table(wrong, [cells])


def test_a_browser_shows_it_without_a_complaint(page: Path) -> None:
    """And draws every chart."""
    shown, complaints = drawn(page)

    assert shown.count("<svg") == page.read_text().count("<svg") > 15
    assert complaints == []


def test_text_of_telemetry_stays_text(run_history: RunHistory, tmp_path: Path) -> None:
    """Markup in names, messages and configuration is shown as it was written."""
    run = msgspec.structs.replace(run_history.run, run_id=HOSTILE, task=HOSTILE, reason=HOSTILE)
    run_history.last = msgspec.structs.replace(run_history.last, run=run)
    run_history.facts.config[HOSTILE] = HOSTILE
    for key, found in run_history.found.by_key.items():
        finding = msgspec.structs.replace(found.finding, message=HOSTILE, hint=HOSTILE, factors=(HOSTILE,))
        run_history.found.by_key[key] = replace(found, finding=finding)
    for seed in run_history.facts.seeds.values():
        seed.blueprint = HOSTILE
    out = tmp_path / "hostile.html"
    shown = kept_of([run_history.last], HOSTILE)
    out.write_text(report(run_history, shown))
    seen = _seen(out.read_text())

    assert [tag for tag, _ in seen.tags if tag in {"script", "img"}] == ["script", "script"]
    assert HOSTILE in seen.words
    dom, complaints = drawn(out)
    assert dom.count("<script") == 2
    assert dom.count(html.escape(HOSTILE[:16])) > 10
    assert complaints == []
    assert "<img" not in dom


def test_a_calm_run_is_reported_as_calm(calm: Path) -> None:
    """Without cards of findings."""
    whole = written(calm)

    assert "Nothing was found wrong" in whole
    assert 'class="found"' not in whole


def test_a_run_of_one_snapshot_has_a_report(storm: Path, tmp_path: Path) -> None:
    """With nothing to draw curves of; and a run that emitted nothing but its name."""
    first = (storm / "snapshots.jsonl").read_bytes().splitlines()[0]
    (tmp_path / "one.jsonl").write_bytes(first + b"\n")
    one = msgspec.json.decode(first, type=Snapshot)
    bare = Snapshot(time=one.time, run=msgspec.structs.replace(one.run, started=None), link=one.link,
                    verdict=one.verdict)  # fmt: skip
    (tmp_path / "bare.jsonl").write_bytes(msgspec.json.encode(bare) + b"\n")

    for name in ("one.jsonl", "bare.jsonl"):
        _seen(written(tmp_path / name))


def test_the_same_recording_gives_the_same_page(storm: Path, page: Path) -> None:
    """To the byte."""
    assert written(storm) + "\n" == page.read_text()


def test_it_is_printed_or_written_where_asked(
    storm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-o -` prints; without `-o` the file is called as the run is."""
    monkeypatch.chdir(tmp_path)

    assert overwatch("report", storm / "snapshots.jsonl", "-o", "-").stdout.startswith("<!doctype html>")
    assert overwatch("report", storm / "snapshots.jsonl").exit_code == 0
    assert (tmp_path / "storm.html").is_file()


def test_what_cannot_be_written_is_reported(storm: Path, tmp_path: Path) -> None:
    """A path below a file; a recording that is none."""
    (tmp_path / "file").touch()
    below = overwatch("report", storm / "snapshots.jsonl", "-o", tmp_path / "file" / "run.html")

    assert (below.exit_code, "cannot be written" in below.stderr) == (2, True)
    assert overwatch("report", tmp_path, "-o", tmp_path / "run.html").exit_code == 2
    assert not (tmp_path / "run.html").exists()


@pytest.fixture(scope="module")
def sick_story(sick: Path) -> RunHistory:
    """Of the run whose policy collapses."""
    return read_history(sick)


def charts(run_history: RunHistory) -> dict[str, str]:
    """The figures of the section, by their title."""
    figures = re.findall(r"<figure.*?</figure>", str(policy(run_history)), re.DOTALL)
    return {re.findall(r"<b>(.*?)</b>", one)[0]: one for one in figures}


def test_its_curves_and_limits_are_those_of_the_terminal(sick: Path, sick_story: RunHistory) -> None:
    """The same answer to the same question, at the end of the recording."""
    recording = open_input(sick)
    assert isinstance(recording, Recording)
    player = Player(recording)
    player.seek(player.last)
    names = tuple(sick_story.curves.policy)
    shown = player.history(sick_story.run.run_id, HistoryQuery(names=names, columns=512))

    assert shown is not None
    assert sick_story.drawn(names) == {one.name: one for one in shown.curves} != {}


@pytest.mark.parametrize("what", ["recording", "log of snapshots"])
def test_a_chart_has_limits_and_the_begin_of_each_finding(
    sick: Path, sick_story: RunHistory, what: str
) -> None:
    """Both limits of a row, each with its side; a mark at the update of each finding that is no mere info."""
    run_history = sick_story if what == "recording" else read_history(sick / "snapshots.jsonl")
    chart = charts(run_history)[KL.label]
    kl = run_history.drawn((KL.short,))[KL.short]
    bad = [
        one for one in run_history.findings if one.severity != "info" and one.finding.subject.scope != "env"
    ]

    assert [(one.severity, one.above) for one in kl.limits] == [("warning", True), ("critical", True)]
    assert chart.count('class="limit ') == len(kl.limits)
    assert chart.count('class="mark ') == len(bad) > 0


def test_an_update_that_no_snapshot_shows_is_in_the_chart(sick_story: RunHistory) -> None:
    """Where updates come faster than snapshots, the least and the most of those between are drawn."""
    tracked = sick_story.tracked
    assert tracked is not None
    past = Past.load(tracked.past.dump())
    line = past.lines[KL.name]
    line.take(line.at[-1], line.index[-1] + 1, 0.001, 10 * max(line.high))
    spiked = replace(sick_story, tracked=msgspec.structs.replace(tracked, past=past))

    before, after = (_highest(charts(one)[KL.label]) for one in (sick_story, spiked))
    assert after > 5 * before


def _highest(chart: str) -> float:
    """Number at the axis."""
    return max(float(one) for one in re.findall(r'text-anchor="end"[^>]*>([^<]*)', chart))

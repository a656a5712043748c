"""Runs that made room are opened again as they were, within a budget, whatever became of their files."""

from pathlib import Path

import pytest

from overwatch.diagnose.judging import DiagnosisConfig, Judging, judging
from overwatch.fold import FAST_NS, Fold
from overwatch.runs import Room
from overwatch.serve.archive import Archive, ArchiveError, Keeping
from overwatch.serve.keeping import Limits
from overwatch.snapshot import Baseline, Snapshot, View
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.collector.running import eventually
from tests.overwatch.test_room import batch, step

RUNS = ("a", "b", "c", "../../d\x1b[31m", "e" * 120)


def how() -> tuple[Judging, Baseline | None]:
    """As shipped."""
    return judging(DiagnosisConfig()), None


def passed_by(archive: Archive) -> dict[str, Snapshot]:
    """Runs one after another through a fold with room for one; how each was last."""
    fold, tick, last = Fold(room=Room(runs=1)), START_NS, dict[str, Snapshot]()
    for run_id in (*RUNS, "newest"):
        events = [fakes.started(tick, n_envs=9), step(tick, range(9), 1), fakes.crashed(tick, 3)]
        for place, some in enumerate(([*events], [fakes.finished(tick, "failed")])):
            tick += FAST_NS
            frame = fold.advance(tick, [batch(run_id, tick - 9, some, 1 + 3 * place)], ())
            for run in fold.evicted:
                archive.keep(run)
            last.update(
                {run: snapshot for (run, view), snapshot in frame.snapshots.items() if view == View()}
            )
    return last


def test_an_evicted_run_is_opened_as_it_was(tmp_path: Path) -> None:
    """Its board, its end and its findings, by any view, in this life and in the next."""
    archive = Archive(tmp_path / "ended", lambda: 1 << 20, how)
    archive.start()
    last = passed_by(archive)
    archive.stop()
    for each in (archive, Archive(tmp_path / "ended", lambda: 1 << 20, how)):
        if each is not archive:
            each.start()
        assert {line.run_id for line in each.lines()} == set(RUNS)
        assert all(line.archived and line.outcome == "failed" for line in each.lines())
        for run_id in RUNS:
            shown = each.snapshot(run_id, View())
            assert shown is not None
            before = last[run_id]
            assert (shown.run, shown.board, shown.envs) == (before.run, before.board, before.envs)
            assert [f.code for f in shown.findings] == [f.code for f in before.findings]
            detailed = each.snapshot(run_id, View(env_id=3))
            assert detailed is not None
            assert detailed.detail is not None
            assert detailed.detail.env_id == 3
        assert each.snapshot("newest", View()) is None
        each.stop()
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / "ended"}


def test_the_oldest_go_where_all_have_more_than_their_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is the newest that fit, also when the budget shrinks while no run is evicted."""
    monkeypatch.setattr("overwatch.serve.archive._CLEAN_S", 0.01)
    budget = [1 << 20]
    archive = Archive(tmp_path, lambda: budget[0], how)
    archive.start()
    passed_by(archive)
    eventually(lambda: len(archive.lines()) == len(RUNS))
    budget[0] = archive.bytes // 2
    eventually(lambda: archive.bytes <= budget[0])
    archive.stop()
    kept = [line.run_id for line in archive.lines()]
    assert kept == list(RUNS[-len(kept) :])
    assert 0 < len(kept) < len(RUNS)
    assert archive.snapshot(RUNS[-1], View()) is not None
    assert len(list(tmp_path.iterdir())) == len(kept)


@pytest.mark.parametrize("damage", ["cut", "gone", "version", "flipped"])
def test_a_run_that_cannot_be_opened_names_its_recording(tmp_path: Path, damage: str) -> None:
    """Others are opened all the same."""
    archive = Archive(tmp_path, lambda: 1 << 20, how)
    archive.start()
    passed_by(archive)
    archive.stop()
    path = next(
        path for path in tmp_path.iterdir() if b'"run_id":"b"' in path.read_bytes().partition(b"\n")[0]
    )
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "version":
        path.write_bytes(data.replace(b'{"version":"', b'{"version":"0.', 1))
        archive = Archive(tmp_path, lambda: 1 << 20, how)
        archive.start()
        archive.stop()
    else:
        path.write_bytes(data[:-20] if damage == "cut" else data[:-9] + bytes(9))
    with pytest.raises(ArchiveError, match="overwatch replay"):
        archive.snapshot("b", View())
    assert archive.snapshot("a", View()) is not None


def test_a_disk_that_refuses_loses_a_picture_and_reports_why(tmp_path: Path) -> None:
    """It is counted, and the next run is tried again."""
    (tmp_path / "ended").write_text("no folder")
    reports = list[str | None]()
    archive = Archive(tmp_path / "ended", lambda: 1 << 20, how, reports.append)
    archive.start()
    passed_by(archive)
    archive.stop()
    failed = [report for report in reports if report is not None]
    assert archive.lost == len(RUNS) == len(failed)
    assert all("ended" in report for report in failed)


def test_a_file_that_cannot_be_removed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is reported, and runs are archived on."""
    monkeypatch.setattr("overwatch.serve.archive._CLEAN_S", 0.01)
    budget, reports = [1 << 20], list[str | None]()
    archive = Archive(tmp_path, lambda: budget[0], how, reports.append)
    archive.start()
    passed_by(archive)
    eventually(lambda: len(archive.lines()) == len(RUNS))
    stuck = next(path for path in tmp_path.iterdir() if b'"run_id":"a"' in path.read_bytes())
    stuck.unlink()
    (stuck / "mine").mkdir(parents=True)
    budget[0] = 0
    eventually(lambda: any(report and stuck.name in report for report in reports))
    budget[0] = 1 << 20
    passed_by(archive)
    eventually(lambda: {line.run_id for line in archive.lines()} >= set(RUNS[1:]))
    assert archive.is_running
    archive.stop()


def test_runs_go_by_count_and_age_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    """Links, files and folders of others with our ending stay, and so does what a link leads to."""
    folder, other, counted = tmp_path / "ended", tmp_path / "other", list[str]()
    archive = Archive(folder, lambda: 1 << 20, how)
    archive.start()
    passed_by(archive)
    archive.stop()
    other.mkdir()
    stolen = next(path for path in folder.iterdir() if b'"run_id":"a"' in path.read_bytes())
    stolen.rename(other / stolen.name)
    stolen.symlink_to(other / stolen.name)
    (folder / "copied.run").write_bytes((other / stolen.name).read_bytes())
    (folder / "mine.run").mkdir()
    foreign = {stolen, folder / "copied.run", folder / "mine.run"}

    def next_life(limits: Limits) -> list[str]:
        now_s = START_NS / 1e9 + 86_400
        keeping = Keeping(limits=limits, now_s=lambda: now_s, count=counted.append)
        archive = Archive(folder, lambda: 1 << 20, how, keeping=keeping)
        archive.start()
        archive.stop()
        return [line.run_id for line in archive.lines()]

    assert next_life(Limits()) == list(RUNS[1:])
    assert next_life(Limits(runs=2)) == list(RUNS[-2:])
    assert next_life(Limits(days=2)) == list(RUNS[-2:])
    assert next_life(Limits(days=0.5)) == []
    assert counted == ["count", "count", "age", "age"]
    assert set(folder.iterdir()) == foreign
    assert (other / stolen.name).is_file()

"""`overwatch tui --once`: what a recording's frame states it is, keys, settings and the exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch.cli import simulate
from overwatch.cli.main import main
from overwatch.simulate import Settings, parse_fault


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a minute of a run in which an env crashes, and which ends well."""
    out = tmp_path_factory.mktemp("once") / "sim"
    faults = (parse_fault("env-crash@10"),)
    simulate.record(Settings(gpus=1, envs=6, slots=0, seconds=20, faults=faults, run_id="sim"), out)
    return out


def _once(recording: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["tui", "--replay", str(recording), "--once", *words])


@pytest.mark.parametrize("size", ["120x40", "80x24", "60x20", "40x12"])
@pytest.mark.parametrize("at", [(), ("--at", "0"), ("--at", "12")])
def test_a_frame_of_a_recording_is_a_replay_and_never_live(
    recording: Path, size: str, at: tuple[str, ...]
) -> None:
    """Of a script too: both words, at every size, wherever it stands."""
    text = _once(recording, "--size", size, *at).output

    assert "LIVE" not in text
    if at != ("--at", "0"):
        assert "REPLAY (SIMULATED)" in text


def test_keys_move_the_recording_as_they_do_on_the_screen(recording: Path) -> None:
    """A seek by seconds and by update show what `--at` shows."""
    there = _once(recording, "--at", "12").output
    keys = ": s e e k space 1 2 enter"

    assert _once(recording, "--press", keys).output == there
    assert "update 9" in _once(recording, "--press", ": s e e k space @ u p d a t e space 9 enter").output


def test_from_the_begin_to_the_moment_the_env_and_the_curve_in_four_keys(recording: Path) -> None:
    """The next alarm, what it is about, its curve: each key has its answer on the screen."""
    moment = _once(recording, "--at", "1", "--press", "]").output
    env = _once(recording, "--at", "1", "--press", "] 1").output
    curve = _once(recording, "--at", "1", "--press", "] 1 P").output

    assert "CRIT" in moment
    assert "crashed" in moment
    assert "┌ env " in env
    assert "POLICY" in curve
    assert "the last " in curve


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--press", "entr"], "'entr' is no key of the flight board; did you mean enter?"),
        (["--press", "A o"], "'o' is no key of the findings"),
        (["--press", "x", "--size", "80x24"], "'x' is no key of the flight board"),
        (["--press", "j", "--format", "json"], "--press is for a frame"),
        (["--size", "9x9"], "'9x9' is no size"),
    ],
)
def test_a_key_that_does_nothing_there_is_refused(recording: Path, words: list[str], named: str) -> None:
    """With its name, its place and what was probably meant; no frame is printed."""
    done = _once(recording, *words)

    assert done.exit_code == 2
    assert named in done.output
    assert "OVERWATCH" not in done.output


@pytest.mark.parametrize("words", [["--press", "j"], ["--exit-code"]])
def test_what_is_for_one_frame_needs_once(recording: Path, words: list[str]) -> None:
    """On the screen itself keys come from the keyboard, and it ends with 0."""
    done = CliRunner().invoke(main, ["tui", "--replay", str(recording), *words])

    assert done.exit_code == 2
    assert "add --once" in done.output


@pytest.mark.parametrize("fmt", ["text", "json", "svg"])
def test_settings_are_refused_as_on_the_screen(recording: Path, tmp_path: Path, fmt: str) -> None:
    """A key or value that is not known names the file and the fix."""
    file = tmp_path / "tui.yaml"
    file.write_text("them: ansi\n", encoding="utf-8")
    done = _once(recording, "--settings", str(file), "--format", fmt)

    assert done.exit_code == 1
    assert "unknown key 'them'; did you mean theme?" in done.output


def test_settings_hold_for_one_frame(recording: Path, tmp_path: Path) -> None:
    """Glyphs and keys of the file."""
    file = tmp_path / "tui.yaml"
    file.write_text("glyphs: ascii\nkeys: {page findings: [f9]}\n", encoding="utf-8")
    text = _once(recording, "--settings", str(file), "--press", "f9").output

    assert text.isascii()
    assert "FINDINGS" in text


def test_the_snapshot_has_causes_whole_and_the_frame_as_much_as_fits(tmp_path: Path) -> None:
    """With two causes too; a narrow frame still has both."""
    faults = (parse_fault("env-crash@6"), parse_fault("gpu-off-bus@7"))
    simulate.record(
        Settings(gpus=2, envs=4, slots=0, seconds=14, faults=faults, run_id="two"), tmp_path / "two"
    )
    reported = _once(tmp_path / "two", "--at", "12", "--format", "json").output
    text = json.loads(reported)["verdict"]["text"]

    assert " · " in text
    assert "…" not in text
    assert any(len(cause) > 45 for cause in text.split(" · "))
    assert text in _once(tmp_path / "two", "--at", "12", "--size", "200x60").output
    assert "crashed" in _once(tmp_path / "two", "--at", "12", "--size", "60x20").output


@pytest.mark.parametrize(
    ("words", "code"), [(["--at", "12"], 20), (["--at", "5"], 0), (["--at", "12", "--format", "json"], 20)]
)
def test_the_exit_code_is_by_severity_where_that_is_asked_for(
    recording: Path, words: list[str], code: int
) -> None:
    """20 for critical, 0 where all is well; 0 for everything without the option."""
    assert _once(recording, *words, "--exit-code").exit_code == code
    assert _once(recording, *words).exit_code == 0

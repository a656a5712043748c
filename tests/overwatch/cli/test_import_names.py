"""The catalogue's names in other programs' files, and Overwatch's exports, are judged as `run.update`'s."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.feeds.inputs import open_input
from overwatch.snapshot import Snapshot

ROWS = [
    {"return": 30.0 + n if n < 30 else 90.0 - 2 * n, "kl_divergence": 0.005 if n < 30 else 0.2,
     "entropy": 0.6, "clip_fraction": 0.1, "explained_variance": 0.8, "grad_norm": 0.4, "value_loss": 2.0}
    for n in range(50)
]  # fmt: skip
_DERIVED = {"kl_drift", "entropy_clip_correlation"}
"""What the tower computes from several updates, again from those that were exported."""


def run(*args: object) -> str:
    """Output of one command that went well."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.output


def last_of(recording: Path) -> Snapshot:
    """The last snapshot of a recording of one run."""
    return list(open_input(recording).recorded())[-1]


def judged(recording: Path) -> dict[str, tuple[float | None, str]]:
    """Newest value and status of each row."""
    policy = last_of(recording).policy.items()
    return {name: (found.value, found.status) for name, found in policy if found.value is not None}


def jsonl(rows: list[dict[str, float]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(rows: list[dict[str, float]]) -> str:
    """CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("area", ["", "train/"])
@pytest.mark.parametrize("fmt", ["jsonl", "csv"])
def test_names_of_the_catalogue_are_judged(tmp_path: Path, fmt: str, area: str) -> None:
    """All of them, and none is proposed for itself; also with a name that TorchRL happens to have.

    Of several libraries `train/entropy` is in nats, so that it fills another row.
    """
    wanted = {name: value for name, value in ROWS[-1].items() if area + name != "train/entropy"}
    rows = [
        {"update": n} | {area + name: value for name, value in row.items()} for n, row in enumerate(ROWS, 1)
    ]
    extra: list[dict[str, float]] = [row | {"loss_critic": 1.0} for row in rows]
    (tmp_path / f"mine.{fmt}").write_text((jsonl if fmt == "jsonl" else table)(extra))
    output = run("import", tmp_path / f"mine.{fmt}", "-o", tmp_path / "out")
    found = judged(tmp_path / "out")

    assert "no library" in output
    assert {name: found[name][0] for name in wanted} == wanted
    assert (found["kl_divergence"][1], found["clip_fraction"][1]) == ("critical", "ok")
    audited = CliRunner().invoke(main, ["audit", str(tmp_path / "out")]).output
    assert not [name for name in ROWS[-1] if f"did you mean {name}?" in audited]


@pytest.mark.parametrize("area", ["rl/", "charts/", "losses/", "mine/agent/"])
def test_names_of_the_catalogue_are_judged_below_any_prefix(tmp_path: Path, area: str) -> None:
    """Whatever the prefix, and also where a library has some of the names: its table comes first."""
    rows = [{"update": float(n)} | {area + name: value for name, value in ROWS[-1].items()} for n in range(9)]
    (tmp_path / "a.csv").write_text(table(rows))
    run("import", tmp_path / "a.csv", "-o", tmp_path / "out")
    found = judged(tmp_path / "out")
    in_nats = {"entropy_nats" if area == "losses/" and name == "entropy" else name for name in ROWS[-1]}

    assert in_nats <= found.keys()
    assert "did you mean" not in CliRunner().invoke(main, ["audit", str(tmp_path / "out")]).output


@pytest.mark.parametrize(
    "spelt",
    [lambda name: name.replace("_", " ").title(), lambda name: name.title().replace("_", ""), str.upper],
)
def test_names_of_the_catalogue_are_judged_in_any_spelling(
    tmp_path: Path, spelt: Callable[[str], str]
) -> None:
    """The column that counts updates, too: its number is no time."""
    rows = [{spelt("update"): float(n)} | {spelt(name): 0.5 for name in ROWS[-1]} for n in range(30)]
    (tmp_path / "a.csv").write_text(table(rows))
    run("import", tmp_path / "a.csv", "-o", tmp_path / "out")

    found = judged(tmp_path / "out").keys()
    assert found >= ROWS[-1].keys()
    assert "update_time" not in found
    assert last_of(tmp_path / "out").run.update == 29


@pytest.mark.parametrize("fmt", ["csv", "jsonl"])
def test_numbers_of_several_agents_are_all_shown_and_none_is_the_run_s(tmp_path: Path, fmt: str) -> None:
    """Also where the second agent comes later."""
    rows = [{"update": float(n), "red/entropy": 0.5, "kl": 0.01} for n in range(9)]
    rows[4:] = [row | {"blue/entropy": 0.1} for row in rows[4:]]
    text = jsonl(rows) if fmt == "jsonl" else table([{"blue/entropy": 0.1} | row for row in rows])
    (tmp_path / f"a.{fmt}").write_text(text)
    run("import", tmp_path / f"a.{fmt}", "-o", tmp_path / "out")
    found = {name: value for name, (value, _) in judged(tmp_path / "out").items()}

    assert (found["red/entropy"], found["blue/entropy"]) == (pytest.approx(0.5), pytest.approx(0.1))
    assert not found.keys() & {"entropy", "entropy_nats"}
    assert found["kl_divergence"] == pytest.approx(0.01)


def test_a_prefix_that_names_something_else_makes_no_row_of_the_policy(tmp_path: Path) -> None:
    """Of evaluation, machines, times, other networks, and statistics of another number."""
    areas = ("eval", "time", "system", "env", "gpu", "val", "critic", "loss", "reward", "a/test", "p0")
    row = {f"{area}/{name}": 0.5 for area in areas for name in ("entropy", "clip_fraction", "grad_norm")}
    (tmp_path / "a.csv").write_text(table([row | {"aux/loss": 1.0, "aux/entropy_loss": -1.0, "kl": 0.1}] * 3))
    run("import", tmp_path / "a.csv", "-o", tmp_path / "out")

    found = judged(tmp_path / "out")
    assert not found.keys() & {"entropy", "entropy_nats", "clip_fraction", "grad_norm", "total_loss"}
    assert "kl_divergence" in found


@pytest.mark.parametrize("names", [("time/total_timesteps",), ("rollout/ep_rew_mean", "time/fps")])
def test_a_library_is_recognised_beside_foreign_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Names that SB3 alone has show it, and the sign of its entropy."""
    row = {"train/approx_kl": 0.01, "train/loss": 0.5, "train/entropy_loss": -0.6, "return": 1.0}
    (tmp_path / "a.csv").write_text(table([dict.fromkeys(names, 9.0) | row | {"value_loss": 0.3}] * 3))

    assert "SB3, " in run("import", tmp_path / "a.csv", "-o", tmp_path / "out")
    assert judged(tmp_path / "out")["entropy_nats"][0] == 0.6


def test_no_library_is_recognised_where_none_is_asked_for(tmp_path: Path) -> None:
    """SB3's names are then other words, and the catalogue's are known."""
    row = {"train/entropy_loss": -0.5, "train/policy_gradient_loss": 0.1, "train/ent_coef": 0.01}
    rows = [row | {"value_loss": 2.0}] * 9
    (tmp_path / "a.jsonl").write_text(jsonl(rows))

    assert "SB3, 3 names known" in run("import", tmp_path / "a.jsonl", "-o", tmp_path / "sb3")
    output = run("import", tmp_path / "a.jsonl", "--library", "none", "-o", tmp_path / "none")
    assert "by hand, 2 names known" in output
    assert judged(tmp_path / "none")["value_loss"][0] == 2.0


@pytest.mark.parametrize("fmt", ["csv", "tensorboard"])
def test_an_export_is_imported_with_the_rows_that_were_judged(tmp_path: Path, fmt: str) -> None:
    """The same updates, the same values, the same statuses; machines' numbers are no updates."""
    options = ("--envs", 2, "--slots", 0, "--gpus", 1, "--seconds", 20, "--fault", "policy-collapse@8")
    run("simulate", *options, "--out", tmp_path / "before")
    out = tmp_path / ("export.csv" if fmt == "csv" else "board")
    run("export", tmp_path / "before", "--to", fmt, "-o", out)
    run("import", out, "-o", tmp_path / "after")
    before, after = judged(tmp_path / "before"), judged(tmp_path / "after")

    assert last_of(tmp_path / "after").run.update == last_of(tmp_path / "before").run.update
    assert {name: status for name, (_, status) in before.items() if name not in _DERIVED} == {
        name: status for name, (_, status) in after.items() if name in before and name not in _DERIVED
    }
    for name in before.keys() - _DERIVED:
        assert after[name][0] == pytest.approx(before[name][0], rel=1e-6)

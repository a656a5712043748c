"""The sketches: the snapshot of the scenario in, the drawn lines out, equal to the cell."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from overwatch import codec
from overwatch.extras import GPU
from overwatch.sdk.exporter.gpus import unread_line
from overwatch.snapshot import Bound, FeedLine, Lane, SeedEvent, Slot, Snapshot, System, Trend
from overwatch.tui import once
from overwatch.tui.context import Context, Ui, replayed
from overwatch.tui.playback import Mark, Playback
from overwatch.tui.prompt import FILTER, Prompt
from overwatch.tui.screen import overview
from overwatch.tui.text import plain
from overwatch.tui.theme import Look
from tests.overwatch.tui import drawers, scenario


def _frame(name: str) -> list[str]:
    path = Path(__file__).parent / "frames" / f"{name}.txt"
    return path.read_text(encoding="utf-8").splitlines()


STANDARD = _frame("standard")
COMPACT = _frame("compact")
STARTED = _frame("started")
ASCII = _frame("ascii")
DRAWER = _frame("drawer")
DRAWER_COMPACT = _frame("drawer_compact")


def _drawn(snapshot: Snapshot, ctx: Context) -> list[str]:
    return [plain(line).rstrip() for line in overview(snapshot, ctx).lines]


def test_the_overview_at_120_by_40_is_the_sketch() -> None:
    """Every cell of the standard layout is where it was drawn."""
    frame = once(scenario.storm(), "text", 120, 40, zone=UTC).split("\n")

    assert frame == STANDARD


def test_the_overview_at_80_by_24_is_the_sketch() -> None:
    """Every cell of the compact layout is where it was drawn."""
    frame = once(scenario.storm_compact(), "text", 80, 24, zone=UTC).split("\n")

    assert frame == COMPACT


def test_the_drawer_at_120_by_40_is_the_sketch() -> None:
    """The box at the right, and what makes way for it at the left."""
    snapshot = drawers.opened()

    assert _drawn(snapshot, drawers.looking(snapshot, 120, 40)) == DRAWER


def test_the_drawer_at_80_by_24_is_the_sketch() -> None:
    """A full screen under verdict and pulse."""
    snapshot = drawers.opened_compact()

    assert _drawn(snapshot, drawers.looking(snapshot, 80, 24)) == DRAWER_COMPACT


def test_the_drawer_before_its_detail_has_come_shows_the_row() -> None:
    """The env's own row is enough for its slots; nothing is made up for the rest."""
    snapshot = msgspec.structs.replace(drawers.opened(), detail=None)
    text = "\n".join(_drawn(snapshot, drawers.looking(snapshot, 120, 40)))

    assert "┌ env 9 · gpu0 · DEGRADED 6.2 ─" in text
    assert "r1c1 ✗ PRUNED     conv_light" in text
    assert "trend" not in text


def test_a_run_without_gradients_or_embargo_has_no_place_for_them() -> None:
    """No head without a column below it, no length of an embargo that nobody sent; gates get the room."""
    snapshot = drawers.opened()
    row = next(env for env in snapshot.envs if env.env_id == 9)
    slots = {name: msgspec.structs.replace(slot, grad=None) for name, slot in row.slots.items()}
    envs = tuple(msgspec.structs.replace(env, slots=slots) if env is row else env for env in snapshot.envs)
    run = msgspec.structs.replace(snapshot.run, embargo=None)
    bare = msgspec.structs.replace(snapshot, run=run, envs=envs)
    lines = _drawn(bare, drawers.looking(bare, 120, 40))

    assert any("alf  age  gate         │" in line for line in lines)
    assert any("r0c1 ⊘ EMBARGOED  –             –    4  – " in line for line in lines)
    assert any("conv_light   .3    0  G2 fail " in line for line in lines)


@pytest.mark.parametrize(
    ("age", "embargo", "shown"),
    [
        (4, 5, "–  4/5  –"),
        (7, 5, "–  7/5  –"),
        (8, 50, "–  8/50 –"),
        (38, 50, "– 38/50 –"),
        (380, 500, "–   380 –"),
        (4, None, "–    4  –"),
        (None, 5, "–    –  –"),
    ],
)
def test_an_embargo_shows_how_much_of_it_is_over(age: int | None, embargo: int | None, shown: str) -> None:
    """Steps of all its steps where that fits; the steps alone where it does not, or where none were sent."""
    snapshot = drawers.opened()
    slot = Slot(stage="embargoed", glyph="⊘", age=age)
    envs = tuple(
        msgspec.structs.replace(env, slots={**env.slots, "r0c1": slot}) if env.env_id == 9 else env
        for env in snapshot.envs
    )
    run = msgspec.structs.replace(snapshot.run, embargo=embargo)
    snapshot = msgspec.structs.replace(snapshot, run=run, envs=envs)
    lines = _drawn(snapshot, drawers.looking(snapshot, 120, 40))

    assert any(f"r0c1 ⊘ EMBARGOED  –             {shown}" in line for line in lines)


@pytest.mark.parametrize(
    ("alpha", "gate", "grad", "shown"),
    [
        (0.3, "G2 0.71", 0.62, "conv_light   .3    7  G2 0.71  .62"),
        (0.42, "G3 passed", 1.0, "conv_light  .42    7  G3 pass 1.00"),
        (1.0, "G3 1.00", 0.004, "conv_light  1.0    7  G3 1.00 .004"),
        (None, None, None, "conv_light    –    7  –          –"),
    ],
)
def test_the_numbers_of_a_slot_stay_in_their_columns(
    alpha: float | None, gate: str | None, grad: float | None, shown: str
) -> None:
    """Each in its place, whatever its size; absent is a dash."""
    snapshot = drawers.opened()
    slot = Slot(stage="blending", glyph="◑", blueprint="conv_light", alpha=alpha, age=7, gate=gate, grad=grad)
    envs = tuple(
        msgspec.structs.replace(env, slots={**env.slots, "r1c1": slot}) if env.env_id == 9 else env
        for env in snapshot.envs
    )
    snapshot = msgspec.structs.replace(snapshot, envs=envs)

    assert any(shown in line for line in _drawn(snapshot, drawers.looking(snapshot, 120, 40)))


@pytest.mark.parametrize(
    ("slot", "text", "why", "shown"),
    [
        ("r0c0", "GERMINATED>PRUNED", "G1: seed health 0.32 < 0.50",
         "r0c0 GERMINATED>PRUNED  G1 0.32 < 0.50 "),
        ("r0c0", "TRAINING>BLENDING", "G2 0.71", "r0c0 TRAINING>BLENDING   G2 0.71 "),
        ("", "CRASHED", "at step 601: CUDA error 700: an illegal memory access",
         "CRASHED  at step 601: CUDA error 700: an il…"),
    ],
)  # fmt: skip
def test_the_numbers_of_a_seed_event_outlast_its_words(slot: str, text: str, why: str, shown: str) -> None:
    """Words between a gate and its numbers go first; a message is cut at its end; no slot takes no room."""
    event = SeedEvent(time=scenario.NOW, slot=slot, text=text, why=why)
    snapshot = drawers.opened()
    assert snapshot.detail is not None
    detail = msgspec.structs.replace(snapshot.detail, seed_events=(event,))
    snapshot = msgspec.structs.replace(snapshot, detail=detail)

    assert any(
        f"seeds 12:41:09 {shown}" in line for line in _drawn(snapshot, drawers.looking(snapshot, 120, 40))
    )


def test_a_trend_shows_all_of_its_window() -> None:
    """More values than bars are drawn by their means, so what was long ago stays in sight."""
    snapshot = drawers.opened()
    assert snapshot.detail is not None
    values = (9.0,) * 8 + (1.0,) * 36
    trends = {"return": Trend(values=values, window="44 episodes")}
    snapshot = msgspec.structs.replace(
        snapshot, detail=msgspec.structs.replace(snapshot.detail, trends=trends)
    )

    (line,) = [line for line in _drawn(snapshot, drawers.looking(snapshot, 120, 40)) if "44 episodes" in line]

    assert "████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  44 episodes" in line


def test_an_alarm_that_is_not_about_an_env_shows_all_it_knows() -> None:
    """The finding, its next step, and the lane's bound with its signals."""
    full = scenario.storm()
    ui = Ui(alarm=full.findings[0])
    text = "\n".join(_drawn(full, drawers.looking(full, 120, 40, ui)))

    assert "┌ CRIT · gpu1 · throttled ─" in text
    assert "next      raise the fan curve or lower power cap" in text
    assert "bound     THROTTLED !!" in text
    policy = Ui(alarm=full.findings[3], full=True)
    text = "\n".join(_drawn(full, drawers.looking(full, 120, 40, policy)))
    assert "value     0.0231   limit >.015" in text


def test_a_paused_recording_has_the_transport_in_its_second_line() -> None:
    """Where it stands, the alarms on the timeline, and the keys."""
    snapshot = scenario.storm()
    playback = Playback(
        time=scenario.NOW, first=scenario.NOW - 900, last=scenario.NOW + 900, playing=False, speed=4.0,
        marks=(Mark(time=scenario.NOW - 300, severity="warning"),),
    )  # fmt: skip
    ctx = replace(
        drawers.looking(snapshot, 120, 40, Ui()), fresh=replayed(snapshot.link, playback), playback=playback
    )
    first, second = _drawn(snapshot, ctx)[:2]

    assert first.endswith("REPLAY paused")
    assert second.startswith(" || 12:41:09.4 of 12:56:09  ━━━")
    assert "w" in second
    assert "┃──" in second
    assert second.endswith("4.0x       Space play  , . step  < > speed  [ ] alarm  : seek")


def test_the_filter_prompt_takes_the_key_line() -> None:
    """What is typed, what is wrong with it, and how many pass."""
    full = scenario.storm()
    board = msgspec.structs.replace(full.board, filter="status=degraded", matched=11)
    snapshot = msgspec.structs.replace(full, board=board)
    text = "status=degraded gpu=0 slot=r1c1 stge=pruned"
    ui = Ui(prompt=Prompt(kind=FILTER, text=text, at=len(text)))
    lines = _drawn(snapshot, drawers.looking(snapshot, 120, 40, ui))

    assert lines[-1].startswith(f"/ {text} ")
    assert lines[-1].endswith("unknown key stge; did you mean stage=?   11 of 64 env")
    assert any("filter status=degraded · 11 of 64 env: 1 CRASHED" in line for line in lines)


def test_a_run_before_its_first_update_shows_absence_not_zero() -> None:
    """Nothing was measured, so everything is a dash and nothing is judged."""
    frame = once(scenario.started(), "text", 120, 40, zone=UTC).split("\n")

    assert frame[:2] == STARTED
    assert frame[2] == " OK  collecting; limits are judged after 20 updates"
    assert frame[3].endswith("─ no update yet · preset ppo ─")
    assert (
        frame[4]
        == "return         –                        KL             –                        entropy        –"
    )
    assert "gpu   no readings; overwatch doctor shows why" in frame


def test_gpus_that_cannot_be_read_have_their_reason_where_their_rows_would_be() -> None:
    """What is missing and the fix, whole at 80 columns; a line about one GPU is no reason for all."""
    unread = unread_line(0, "node-7", GPU.need)
    lines = [
        FeedLine(time=1.0, severity="warning", subsystem=unread.subsystem, message=unread.message,
                 fields=unread.fields),
        FeedLine(time=2.0, severity="info", subsystem="gpu", message="cuda:0 answers again",
                 fields={"lane": "GPU-a", "state": "back"}),
    ]  # fmt: skip
    snapshot = msgspec.structs.replace(scenario.started(), feed=tuple(lines))
    [row] = [line for line in once(snapshot, "text", 80, 24, zone=UTC).split("\n") if line[:3] == "gpu"]
    assert 'needs pynvml; pip install "esper-overwatch[gpu]"' in row


def test_ascii_draws_the_same_frame_cell_for_cell() -> None:
    """Each glyph has a stand-in of one cell, so nothing moves and no byte is outside of 0x20 to 0x7e."""
    frame = once(scenario.storm(), "text", 120, 40, look=Look(ascii=True), zone=UTC).split("\n")

    assert frame[4] == ASCII[0]
    assert [line for line in ASCII if line not in frame] == []
    assert all(" " <= char <= "~" for line in frame for char in line)
    assert [len(line) for line in frame] == [len(line) for line in STANDARD]


def test_without_colour_every_status_still_reads() -> None:
    """Two snapshots that differ in one status alone give different text."""
    full = scenario.storm()
    kl = full.policy["kl_divergence"]
    first, *rest = full.envs
    calmer = (
        msgspec.structs.replace(
            full, policy={**full.policy, "kl_divergence": msgspec.structs.replace(kl, status="critical")}
        ),
        msgspec.structs.replace(full, envs=(msgspec.structs.replace(first, status="diverging"), *rest)),
        msgspec.structs.replace(full, verdict=msgspec.structs.replace(full.verdict, severity="warning")),
    )

    texts = {once(snapshot, "text", 120, 40, zone=UTC) for snapshot in (full, *calmer)}

    assert len(texts) == 4


def test_a_run_without_slots_has_no_word_about_them() -> None:
    """Slots, seeds, rent and stages are not on the screen of a run that has none, at any width."""
    words = ("slot", "seed", "rent", "germinated", "fossilised", "cull")

    for width, height in ((80, 24), (120, 40), (180, 60)):
        frame = once(scenario.without_slots(), "text", width, height).lower()
        assert [word for word in words if word in frame.replace("current", "")] == []


def test_a_healthy_run_is_calm() -> None:
    """No alarm line, no CRIT, no WARN and no mark."""
    frame = once(scenario.healthy(), "text", 120, 40, zone=UTC)

    assert " OK  64 env, policy and 2 lanes healthy" in frame
    assert not any(word in frame for word in ("CRIT", "WARN", "!"))


def test_lanes_with_nothing_wrong_fold_when_space_is_short() -> None:
    """A huge run shows the bad lane's rows and one line for each other lane."""
    frame = once(scenario.huge(), "text", 120, 40).split("\n")

    assert sum(line.startswith("▸ gpu") for line in frame) == 7
    assert [line for line in frame if line.startswith("▾ gpu5")]
    assert any(line.split()[1:3] == ["more", "OK"] for line in frame)


def test_the_longest_status_is_whole() -> None:
    """DIVERGING is not cut, beside slots and without, and its score stays readable."""
    full = scenario.storm()
    first = msgspec.structs.replace(full.envs[0], status="diverging")
    frame = once(msgspec.structs.replace(full, envs=(first, *full.envs[1:])), "text", 120, 40, zone=UTC)

    assert ">   17 DIVERGING  10 crashed 1s ago" in frame
    assert "DIVERGING  8.8 non-finite observation" in once(scenario.huge(), "text", 120, 40)


def test_svg_and_json_are_the_same_frame_and_the_snapshot() -> None:
    """The SVG holds the lines that text has; the JSON is the snapshot itself."""
    snapshot = scenario.storm()

    assert codec.decode(once(snapshot, "json").encode()) == snapshot
    drawn = once(snapshot, "svg", 120, 40, zone=UTC)
    assert drawn.startswith("<svg")
    assert "BLENDING&gt;PRUNED" in drawn


def test_more_lanes_than_rows_become_one_line() -> None:
    """The lanes that have no room are counted, with their state where they share one."""
    lane = Lane(gpu_id="gpu0", bound=Bound(state="COMPUTE-BOUND"))
    lanes = tuple(msgspec.structs.replace(lane, gpu_id=f"gpu{i}") for i in range(9))
    snapshot = msgspec.structs.replace(scenario.healthy(), system=System(gpus=lanes))

    frame = once(snapshot, "text", 120, 40).split("\n")

    assert "+6 lanes COMPUTE-BOUND" in frame


def test_slots_that_differ_from_the_heads_carry_their_own_label() -> None:
    """Slots are looked up by name: another set gives labelled chips, a larger one dots and a count."""
    full = scenario.storm()
    slot = next(iter(full.envs[1].slots.values()))
    other = msgspec.structs.replace(full.envs[1], slots={"a": slot, "b": slot})
    many = msgspec.structs.replace(full.envs[2], slots={f"s{i}": slot for i in range(60)})
    first = full.envs[0]
    snapshot = msgspec.structs.replace(full, envs=(first, other, many, *full.envs[3:]))

    frame = once(snapshot, "text", 160, 40, zone=UTC).split("\n")

    assert any(line.rstrip().endswith("slots") for line in frame)
    assert any("●a at" in line and "●b at" in line for line in frame)
    assert any(line.rstrip().endswith("+26") for line in frame if "    6 OK" in line)


@pytest.mark.parametrize(
    ("state", "age_s", "ending"),
    [("stale", 14.0, "STALE 14s"), ("lost", 190.0, "LOST 3m10s"), ("ended", 720.0, "ENDED 12m")],
)
def test_a_run_that_no_longer_sends_keeps_its_name_and_shows_how_long(
    state: str, age_s: float, ending: str
) -> None:
    """The first line of the sketch: everything as it was, and the state with its age at the right."""
    full = scenario.storm()
    link = msgspec.structs.replace(full.link, state=state, data_age_s=age_s)
    frame = once(msgspec.structs.replace(full, link=link), "text", 120, 40, zone=UTC).split("\n")
    identity = STANDARD[0].removesuffix("LIVE 0.3s").rstrip()

    assert frame[0] == identity + ending.rjust(119 - len(identity))
    assert all(len(line) <= 120 for line in frame)


def test_catching_up_takes_the_room_of_the_modes() -> None:
    """The state never gives way: the modes do."""
    full = scenario.storm()
    link = msgspec.structs.replace(full.link, state="catching_up", data_age_s=290.0)
    first = once(msgspec.structs.replace(full, link=link), "text", 120, 40, zone=UTC).split("\n")[0]

    assert first == (
        " OVERWATCH  digits-0712  morphogenesis/shaped/ppo  2 gpu 64 env 6 slot  git 4be91c2+dirty"
        + "CATCHING UP 4m50s".rjust(30)
    )


def test_old_values_are_marked_and_no_verdict_is_drawn_from_them() -> None:
    """A tilde before each number, none of them cut; the lanes' verdicts are shown as the last ones."""
    full = scenario.storm()
    link = msgspec.structs.replace(full.link, state="stale", data_age_s=14.0)
    frame = once(msgspec.structs.replace(full, link=link), "text", 120, 40, zone=UTC).split("\n")
    text = "\n".join(frame)

    assert "~0.0231" in text
    assert "~2.4e-4" in text
    assert "unknown ?      last verdict SYNC-BOUND, 14s ago" in text
    assert [line for line in frame[4:7] if "…" in line] == []

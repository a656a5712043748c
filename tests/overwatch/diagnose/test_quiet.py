"""What looks like trouble and is none is reported as info or not at all; what is trouble still is."""

from collections.abc import Sequence

import msgspec
import pytest

from overwatch.catalog import KL
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.policy_rows import WARM_UP_UPDATES
from overwatch.diagnose.problem import Problem
from overwatch.events import Column, Conflated, CurriculumChanged, EarlyStopped, Event
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from overwatch.state import apply
from tests import fakes
from tests.fakes import SECOND, START_NS

HALF = SECOND // 2


def _shown(events: Sequence[Event]) -> Snapshot:
    """The snapshot after ten ticks at the end, so that what must last has lasted."""
    state = fakes.folded(list(events))
    judged = assess(state, Assessment(), state.last_stamp)
    for i in range(1, 10):
        judged = assess(state, judged.assessment, state.last_stamp + i * SECOND // 10)
    return project(state, judged, View())


def _found(events: Sequence[Event]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in _shown(events).findings}


def _problem(events: Sequence[Event]) -> Problem:
    state = fakes.folded(list(events))
    (item,) = assess(state, Assessment(), state.last_stamp).assessment.findings.values()
    return item.problem


def _updates(n: int, config: dict[str, str] | None = None, **values: Sequence[float]) -> list[Event]:
    """`n` updates; each row ends with its last values, and held the first of them before."""
    reported: list[Event] = [fakes.started(START_NS, config=config or {})]
    for i in range(n):
        now = {name: v[max(0, i - n + len(v))] for name, v in values.items()}
        reported.append(fakes.policy(START_NS + i * SECOND, index=i, **now))
    return reported


NOISY = [-180.0 + 30.0 * ((7 * i) % 11 - 5) / 5 for i in range(40)]


@pytest.mark.parametrize(
    "returns", [[487.0], [487.0, 440.0], NOISY], ids=["steady", "a little less", "noisy"]
)
@pytest.mark.parametrize("entropy", [0.2, 0.05])
def test_a_solved_policy_has_converged(entropy: float, returns: list[float]) -> None:
    """Low entropy with a return at its best is info, and its status on the screen is as it should be."""
    shown = _shown(_updates(40, entropy=[entropy], **{"return": returns}))

    assert {finding.code: finding.severity for finding in shown.findings} == {"converged": "info"}
    assert (shown.policy["entropy"].status, shown.verdict.severity) == ("ok", "info")
    assert shown.verdict.text.startswith(f"converged: entropy {entropy:.0%} of its maximum")


@pytest.mark.parametrize(
    ("entropy", "returns", "severity"),
    [
        ([0.05], [487.0, 300.0], "critical"),
        ([0.05], [487.0, 380.0, 380.0, 380.0], "critical"),
        ([0.2], [487.0, 300.0], "warning"),
        ([0.6, 0.5, 0.4, 0.25, 0.2, 0.1, 0.08, 0.06, 0.05], [487.0], "critical"),
        ([0.05], [], "critical"),
    ],
    ids=["return fell", "return lower for long", "not so low", "falls fast", "nobody sent returns"],
)
def test_little_entropy_without_success_is_trouble(
    entropy: list[float], returns: list[float], severity: str
) -> None:
    """Critical while it falls fast or the return is not at its best, on the screen as well."""
    reported = {"return": returns} if returns else {}
    shown = _shown(_updates(40, entropy=entropy, **reported))

    assert {f.code: f.severity for f in shown.findings} == {"policy-entropy": severity}
    assert shown.policy["entropy"].status == severity


@pytest.mark.parametrize("steps", [{"kl_divergence": [0.1]}, {"clip_fraction": [0.6]}], ids=["KL", "clip"])
def test_what_takes_large_steps_has_not_converged(steps: dict[str, list[float]]) -> None:
    """A policy that still moves far is not done, whatever it earns."""
    found = _found(_updates(40, entropy=[0.05], **steps, **{"return": [487.0]}))

    assert found
    assert "info" not in found.values()


def test_a_slow_fall_of_noisy_returns_is_not_their_best() -> None:
    """A slope is not taken for luck."""
    falling = [-100.0 - 12.0 * i + value / 18 for i, value in enumerate(NOISY[:12])]

    assert _found(_updates(40, entropy=[0.05], **{"return": falling})) == {"policy-collapse": "critical"}


def test_nothing_has_converged_while_it_warms_up() -> None:
    """A policy without entropy in its first updates has solved nothing."""
    shown = _shown(_updates(WARM_UP_UPDATES - 1, entropy=[0.05], **{"return": [500.0]}))

    assert shown.findings == ()
    assert shown.policy["entropy"].status == "critical"


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([6.0, 6.1], {}),
        ([6.0] + [18.0] * 5, {}),
        ([6.0] + [30.0] * 5, {"policy-grad-norm": "warning"}),
        ([6.0] + [66.0] * 5, {"policy-grad-norm": "critical"}),
    ],
)
def test_a_gradient_is_judged_by_the_runs_own_median(norms: list[float], found: dict[str, str]) -> None:
    """Large is nothing; four times its own median is a warning, ten times critical."""
    assert _found(_updates(40, grad_norm=norms)) == found


def test_the_share_of_clipped_updates_is_shown() -> None:
    """From the norms and the limit that the run declared; the finding states it too."""
    clips = {"max_grad_norm": "10"}
    calm = _shown(_updates(40, clips, grad_norm=[6.0] + [11.0] * 5))
    wild = _problem(_updates(40, clips, grad_norm=[6.0] + [30.0] * 5))

    assert (calm.policy["grad_clipped"].text, calm.policy["grad_clipped"].status) == ("25%", "ok")
    assert calm.findings == ()
    assert wild.factors == ("clipped in 25% of the newest updates",)


def test_the_trainers_own_share_of_clipped_updates_counts() -> None:
    """What is sent is not worked out; without a limit and without a word it is absent."""
    clips = {"max_grad_norm": "10"}
    reported = _shown(_updates(30, clips, grad_norm=[11.0], grad_clipped=[0.5])).policy["grad_clipped"]
    silent = _shown(_updates(30, grad_norm=[11.0])).policy["grad_clipped"]

    assert (reported.text, silent.status, silent.value) == ("50%", "absent", None)


@pytest.mark.parametrize("stop_first", [True, False])
@pytest.mark.parametrize(
    ("kl", "found"),
    [
        (0.032, {"early-stop": "info"}),
        (0.05, {"policy-kl-divergence": "critical"}),
    ],
)
def test_a_stop_near_the_target_worked(kl: float, found: dict[str, str], *, stop_first: bool) -> None:
    """A stop at 1.6 times the target is info and no warning; one at 2.5 times did not help."""
    events = _updates(40, {"target_kl": "0.02"}, kl_divergence=[0.01] + [kl] * 5)
    for update in range(35, 40):
        place = next(i for i, event in enumerate(events) if getattr(event, "index", None) == update)
        events.insert(place if stop_first else place + 1, _stop(update, kl))
    shown = _shown(events)

    assert {finding.code: finding.severity for finding in shown.findings} == found
    if "early-stop" in found:
        assert shown.policy["kl_divergence"].status == "ok"
        assert shown.verdict.text == "early stop worked: KL 0.0320 at target 0.02"
        assert shown.findings[0].factors == ("5 of the last 5 updates",)
    reported = {(line.severity, line.message) for line in shown.feed if line.kind == "early_stopped"}
    assert reported == {
        ("info", "early stop worked") if kl < 0.04 else ("warning", "early stop came too late")
    }


def _stop(update: int, kl: float) -> EarlyStopped:
    return EarlyStopped(
        at=START_NS + update * SECOND, update=update, epoch=2, kl_divergence=kl, target=0.02,
        minibatches_skipped=8,
    )  # fmt: skip


def test_kl_beyond_its_target_without_a_stop_is_a_warning() -> None:
    """Nobody stopped it, so it is found."""
    events = _updates(40, {"target_kl": "0.02"}, kl_divergence=[0.01] + [0.032] * 5)

    assert _found(events) == {"policy-kl-divergence": "warning"}


def test_an_early_stop_is_not_found_for_ever() -> None:
    """Five updates later it is history; the feed keeps it."""
    events = _updates(40, {"target_kl": "0.02"}, kl_divergence=[0.01])
    late, early = [*events, _stop(38, 0.032)], [*events, _stop(30, 0.032)]

    assert (_found(late), _found(early)) == ({"early-stop": "info"}, {})


@pytest.mark.parametrize(
    ("returns", "found"),
    [([20.0, 30.0], {"policy-explained-variance": "warning"}), ([20.0], {})],
    ids=["returns vary", "all earn the same"],
)
def test_a_critic_is_judged_where_returns_vary(returns: list[float], found: dict[str, str]) -> None:
    """What does not vary cannot be explained."""
    events = _updates(40, explained_variance=[0.5] + [-0.5] * 5, **{"return": returns * 20})

    assert _found(events) == found


@pytest.mark.parametrize(
    ("updates", "explained", "found"),
    [
        (40, [0.05], {}),
        (40, [0.3], {"policy-value-loss": "warning"}),
        (55, [0.05], {"policy-value-loss": "warning"}),
    ],
    ids=["the critic learns", "it has learned", "it had its time"],
)
def test_value_loss_waits_for_the_critic(updates: int, explained: list[float], found: dict[str, str]) -> None:
    """Until explained variance first exceeded 0.1, at most for fifty updates."""
    events = _updates(updates, explained_variance=explained, value_loss=[1.0] + [6.0] * 5)

    assert _found(events) == found


def _fleet(change: CurriculumChanged | None, n: int = 16) -> list[Event]:
    """Twenty episodes, a change, and as many in which all earn far less; one every half second."""
    events: list[Event] = []
    for episode in range(40):
        level = 10.0 if episode < 20 else 2.0
        at = START_NS + episode * HALF
        if episode == 20 and change is not None:
            events.append(change)
        earned = [level + 0.1 * ((7 * i + 3 * episode) % 11) for i in range(n)]
        events.append(fakes.ended(at, list(range(n)), earned))
    return events


def _ever(events: Sequence[Event]) -> set[str]:
    """Codes of all findings at any of the ticks, one after each event and ten at the end."""
    codes: set[str] = set()
    state = fakes.folded([events[0]])
    assessment = Assessment()
    for number, record in enumerate(fakes.records(events)[1:], start=1):
        apply(state, record, record.event.at + 1_000_000)
        assessment = assess(state, assessment, START_NS + number * HALF + 1_000_000).assessment
        codes |= {item.problem.code for item in assessment.findings.values()}
    return codes


def test_a_drop_after_a_change_of_the_curriculum_is_no_collapse() -> None:
    """The same episodes without the change are one; the feed states that the task changed."""
    change = CurriculumChanged(at=START_NS + 20 * HALF, name="level", before="3", after="4")
    (line,) = _shown(_fleet(change)).feed

    assert _ever(_fleet(None)) == {"reward-collapse"}
    assert _ever(_fleet(change)) == set()
    assert (line.severity, line.message, line.fields) == (
        "info", "curriculum level", {"before": "3", "after": "4"},
    )  # fmt: skip


def test_a_fall_on_the_new_task_is_found() -> None:
    """After enough episodes of the new task it is judged by itself."""
    change = CurriculumChanged(at=START_NS + 20 * HALF, name="level")
    events = _fleet(change)
    fallen = [
        fakes.ended(START_NS + (40 + i) * HALF, list(range(16)), [-6.0 + 0.1 * k for k in range(16)])
        for i in range(10)
    ]

    assert _ever([*events, *fallen]) == {"reward-collapse"}


def test_a_change_for_few_envs_leaves_the_others_judged() -> None:
    """A harder level for two of sixteen excuses no fall of the fleet."""
    change = CurriculumChanged(at=START_NS + 20 * HALF, name="level", env_id=Column.of([3, 4]))

    assert "reward-collapse" in _ever(_fleet(change))


def test_a_harder_task_does_not_make_a_solved_policy_sick() -> None:
    """The best return of the old task is no measure of the new one."""
    easy = _updates(30, entropy=[0.05], **{"return": [500.0]})
    hard: list[Event] = [
        fakes.policy(START_NS + i * SECOND, index=i, entropy=0.05, **{"return": 90.0}) for i in range(30, 50)
    ]
    change = CurriculumChanged(at=START_NS + 29 * SECOND, name="level")

    assert _found([*easy, *hard]) == {"policy-collapse": "critical"}
    assert _found([*easy, change, *hard]) == {"converged": "info"}


@pytest.mark.parametrize(("stopped", "found"), [(10, {}), (3, {"policy-kl-divergence": "warning"})])
def test_stops_within_a_record_of_many_updates_worked_too(stopped: int, found: dict[str, str]) -> None:
    """At a hundred updates a second, where each of ten stops KL near its target, nothing is wrong with it."""
    events = _updates(40, {"target_kl": "0.02"}, kl_divergence=[0.01])
    for record in range(5):
        last = 49 + 10 * record
        at = START_NS + (40 + record) * SECOND
        many = Conflated(
            n=10, high={KL.name: Column.scalar(0.032)}, low={KL.name: Column.scalar(0.01)},
            warnings={KL.name: 10},
        )  # fmt: skip
        reported = fakes.policy(at, index=last, kl_divergence=0.032)
        events += [_stop(last - i, 0.032) for i in range(stopped)]
        events.append(msgspec.structs.replace(reported, conflated=many))

    assert {code: severity for code, severity in _found(events).items() if code != "early-stop"} == found

"""The run of the sketches when it no longer speaks as usual: stale, lost, ended, or late after an outage."""

import msgspec

from overwatch.catalog.durations import duration
from overwatch.snapshot import Finding, Snapshot, Subject, Verdict
from tests.overwatch.tui import scenario

replace = msgspec.structs.replace


def _silent(state: str, age_s: float, verdict: Verdict, finding: Finding | None) -> Snapshot:
    full = scenario.storm()
    link = replace(full.link, state=state, data_age_s=age_s, lag_s=0.0, last_from="rank 0")
    found = () if finding is None else (finding,)
    return replace(full, time=scenario.NOW + age_s, link=link, verdict=verdict, findings=found)


def _about_run(code: str, severity: str, message: str, hint: str) -> Finding:
    return Finding(
        id=f"{code}:run:", code=code, severity=severity, subject=Subject(scope="run"), since=scenario.NOW,
        message=message, hint=hint,
    )  # fmt: skip


def stale(age_s: float = 14.0) -> Snapshot:
    """Nothing has come for a while."""
    text = f"no telemetry for {duration(age_s)}; last record{{}} from rank 0; process state unknown"
    finding = _about_run(
        "telemetry-stale", "critical", text.format(""), "look at the trainer's process and its log"
    )
    verdict = Verdict(
        severity="critical", text=text.format(" 2026-07-12T12:41:09Z"), counts={"critical": 1},
        note=f"everything below is {duration(age_s)} old",
    )  # fmt: skip
    return _silent("stale", age_s, verdict, finding)


def lost() -> Snapshot:
    """Nothing has come for so long that nothing will."""
    text = "LOST: no end record, last phase update 312, last checkpoint 6m before the end"
    finding = _about_run("run-lost", "critical", text, "look at the trainer's process and its log")
    verdict = Verdict(severity="critical", text=text, counts={"critical": 1})
    return _silent("lost", 190.0, verdict, finding)


def ended() -> Snapshot:
    """The run has stated that it is over."""
    return _over("completed", Verdict(severity="ok", text="run completed after 312 updates"))


def ended_sick() -> Snapshot:
    """It completed with a policy that had collapsed, and a lane that was hot."""
    verdict = Verdict(
        severity="critical", counts={"critical": 1, "warning": 1},
        text="completed; ended in policy collapse (open 1m36s) · thermal throttle on gpu1 (open 4m12s)",
    )  # fmt: skip
    message, hint = (
        "policy collapse: KL, entropy and clip beyond their limits; returns fall",
        "go back to the last good checkpoint",
    )
    collapse = replace(
        _about_run("policy-collapse", "critical", message, hint), subject=Subject(scope="policy"),
        since=scenario.NOW - 96, ended_at=scenario.NOW,
    )  # fmt: skip
    hot = replace(
        _about_run("thermal-throttle", "warning", "thermal throttle, clock at 58% of max", "cool it"),
        subject=Subject(scope="gpu", id="gpu1"), since=scenario.NOW - 252, ended_at=scenario.NOW,
    )  # fmt: skip
    return _over("completed", verdict, collapse, hot)


def failed() -> Snapshot:
    """With its reason."""
    text = "FAILED: RuntimeError: CUDA error 700"
    verdict = Verdict(severity="critical", text=text, counts={"critical": 1})
    finding = _about_run("run-failed", "critical", text, "read the trainer's log")
    return _over("failed", verdict, replace(finding, ended_at=scenario.NOW))


def _over(outcome: str, verdict: Verdict, *found: Finding) -> Snapshot:
    full = _silent("ended", 720.0, verdict, None)
    lanes = tuple(replace(lane, bound=None) for lane in full.system.gpus)
    return replace(
        full, run=replace(full.run, outcome=outcome, eta_s=None), findings=found,
        system=replace(full.system, gpus=lanes, bound=None),
    )  # fmt: skip


def silent() -> Snapshot:
    """Nothing has come for long from a producer that sends no end record."""
    text = "no telemetry for 12m0s; last record{} from rank 0; it sends no end record: finished or killed"
    finding = _about_run(
        "run-silent", "warning", text.format(""), "look at the trainer's process and its log"
    )
    verdict = Verdict(
        severity="warning", text=text.format(" 2026-07-12T12:41:09Z"), counts={"warning": 1},
        note="everything below is 12m0s old",
    )  # fmt: skip
    return _silent("silent", 720.0, verdict, finding)


def catching_up() -> Snapshot:
    """What a spool kept while the collector was away is coming in."""
    finding = _about_run(
        "collector-away", "info", "the collector was away for 5m02s; what was sent meanwhile is coming in",
        "nothing to do; what is shown is as old as the first line states",
    )  # fmt: skip
    verdict = Verdict(
        severity="warning", counts={"info": 1}, note="no alarm is raised for the gap itself",
        text="the collector was away for 5m02s; showing 2026-07-12T12:36:19Z, catching up at 9x",
    )  # fmt: skip
    full = scenario.healthy()
    link = replace(
        full.link,
        state="catching_up",
        data_age_s=290.0,
        lag_s=290.0,
        away_s=302.0,
        speed=9.0,
        last_from="rank 0",
    )
    return replace(full, link=link, verdict=verdict, findings=(finding,))

"""Alerts as files: rules for Prometheus, and cases for `promtool test rules`.

Every alert has four cases: it fires, it is pending and does not fire yet, nothing is wrong, there is no data.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import yaml

from overwatch.catalog.alerts import Area
from overwatch.generate.boards import Board
from overwatch.generate.rules.alert import Alert
from overwatch.generate.rules.recorded import Recording
from overwatch.generate.rules.windows import Plan, span

Node: TypeAlias = "str | int | list[Node] | dict[str, Node]"
_HEAD: Final = "# Generated from the catalogue of Overwatch, as `overwatch rules` prints it. Do not edit.\n"
STEP_S: Final = 15
"""Between two evaluations of a test."""
LONG_STEP_S: Final = 60
"""The same where something must hold for longer than `STEPS` short ones."""
STEPS: Final = 400
"""Samples of each series."""
_BOARDS: Final = {Area.COLLECTOR: Board.COLLECTOR, Area.MACHINE: Board.LANES}
"""Where to look first; the run's own board for all others."""


def rule_file(
    alerts: Sequence[Alert], plan: Plan, words: str = "", recorded: Sequence[Recording] = ()
) -> str:
    """Alerts as a file of rules, one group an area, after what is recorded; `words` end a group's name."""
    groups: dict[str, list[Node]] = {}
    for one in recorded:
        rule: Node = {"record": one.name, "expr": _Block(one.expr) if "\n" in one.expr else one.expr}
        groups.setdefault("overwatch-recorded", []).append(rule)
    for alert in alerts:
        groups.setdefault(f"overwatch-{alert.area.value}{words}", []).append(_rule(alert, plan))
    nodes: list[Node] = [{"name": name, "rules": rules} for name, rules in groups.items()]
    return _HEAD + _dump({"groups": nodes})


def _rule(alert: Alert, plan: Plan) -> dict[str, Node]:
    return {
        "alert": alert.name,
        "expr": _Block(alert.expr) if "\n" in alert.expr else alert.expr,
        "for": span(alert.hold_s),
        "labels": {**_labels(alert)},
        "annotations": {**annotations(alert, plan)},
    }


def _labels(alert: Alert) -> dict[str, str]:
    return {"severity": alert.severity, "area": alert.area.value}


def annotations(alert: Alert, plan: Plan) -> dict[str, str]:
    """Annotations of an alert, with templates for its labels."""
    board = _BOARDS.get(alert.area, Board.RUN)
    run = "{{ $labels.rl_run_id }}" if "rl_run_id" in alert.by else None
    anchor = "{{ $labels.code }}" if "code" in alert.by else alert.code
    return {
        "summary": alert.summary,
        "description": alert.description,
        **({"runbook_url": f"{plan.runbooks}#{anchor}"} if plan.runbooks else {"runbook": alert.runbook}),
        "dashboard_url": f"{plan.grafana}{board.path(run)}",
    }


def case_file(rules: str, alerts: Sequence[Alert], plan: Plan) -> str:
    """Cases for the alerts of the file `rules`, a path from where this file lies."""
    step = STEP_S if max(alert.hold_s for alert in alerts) < STEPS * STEP_S // 2 else LONG_STEP_S
    tests: list[Node] = [
        _case("every alert fires", _inputs(alerts, bad=True), _firing(alerts, plan, step), step),
        {
            **_case(
                "pending is not firing yet",
                _inputs(alerts, bad=True),
                _quiet(alerts, step),
                step,
            ),
            "promql_expr_test": [_pending(alert, step) for alert in alerts],
        },
        _case("nothing is wrong", _inputs(alerts, bad=False), _silent(alerts, step), step),
        _case("there is no data", [], _without(alerts, plan, step), step),
    ]
    return _HEAD + _dump({"rule_files": [rules], "evaluation_interval": f"{step}s", "tests": tests})


def _case(name: str, inputs: list[Node], wanted: list[Node], step: int) -> dict[str, Node]:
    return {"name": name, "interval": f"{step}s", "input_series": inputs, "alert_rule_test": wanted}


def _inputs(alerts: Sequence[Alert], *, bad: bool) -> list[Node]:
    """All series, each once."""
    values = {one.series: one.values for alert in alerts for one in alert.inputs(bad=bad)}
    return [
        {"series": series, "values": value if "x" in value else f"{value}+0x{STEPS}"}
        for series, value in values.items()
    ]


def _fires_at(alert: Alert, step: int) -> int:
    """The first evaluation at which it fires, in seconds of the test."""
    return (alert.lead + -(-alert.hold_s // step)) * step


def _firing(alerts: Sequence[Alert], plan: Plan, step: int) -> list[Node]:
    return [_expect(alert, _fires_at(alert, step), _reported(alert, plan)) for alert in alerts]


def _quiet(alerts: Sequence[Alert], step: int) -> list[Node]:
    return [_expect(alert, _fires_at(alert, step) - step, []) for alert in alerts]


def _silent(alerts: Sequence[Alert], step: int) -> list[Node]:
    return [_expect(alert, STEPS * step, []) for alert in alerts]


def _without(alerts: Sequence[Alert], plan: Plan, step: int) -> list[Node]:
    """Without data an alert is silent, but for the one that reports this."""
    return [
        _expect(alert, _fires_at(alert, step), _reported(alert, plan) if alert.fires_without_data else [])
        for alert in alerts
    ]


def _expect(alert: Alert, at_s: int, fired: list[Node]) -> Node:
    return {"eval_time": f"{at_s}s", "alertname": alert.name, "exp_alerts": fired}


def _reported(alert: Alert, plan: Plan) -> list[Node]:
    """What Alertmanager gets when the alert's own series are bad."""
    labels = _own_labels(alert)
    stated = {name: _expand(text, labels) for name, text in annotations(alert, plan).items()}
    return [{"exp_labels": {**labels, **_labels(alert)}, "exp_annotations": {**stated}}]


def _own_labels(alert: Alert) -> dict[str, str]:
    """Values of the labels that an alert fires with, from the first of its series."""
    inside = alert.inputs(bad=True)[0].series.partition("{")[2].rstrip("}")
    known = dict(pair.split("=", 1) for pair in inside.split(","))
    return {name: known[name].strip('"') for name in alert.by}


def _pending(alert: Alert, step: int) -> Node:
    labels = {"alertname": alert.name, "alertstate": "pending", **_own_labels(alert), **_labels(alert)}
    query = ", ".join(f'{name}="{word}"' for name, word in labels.items())
    return {
        "expr": f"count(ALERTS{{{query}}})",
        "eval_time": f"{_fires_at(alert, step) - step}s",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


def _expand(text: str, labels: dict[str, str]) -> str:
    for name, word in labels.items():
        text = text.replace(f"{{{{ $labels.{name} }}}}", word)
    return text


class _Block(str):
    """A text of several lines, written as such."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """No aliases, and lists are indented."""

    def ignore_aliases(self, data: object) -> bool:
        """Each is written out."""
        del data
        return True


def _block(dumper: yaml.SafeDumper, text: _Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Block, _block)


def _dump(node: Node) -> str:
    return yaml.dump(node, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)

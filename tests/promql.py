"""PromQL taken apart, for tests of what is generated: which series an expression names, and how."""

from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser
from prometheus_client.samples import Sample
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

VARIABLES = {
    "$__rate_interval": "5s", "$__range": "60s", "$rl_run_id": ".+", "$job": ".+", "$instance": ".+",
    "$cluster": ".+",
}  # fmt: skip
"""What a dashboard's variables become when everything is chosen."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector of an expression."""

    name: str
    labels: dict[str, str]
    ranged: bool
    within: tuple[str, ...]
    """Names of the functions around it, the nearest last."""


def named(sample: Sample) -> str:
    """Return a sample's name with its labels, as a selector has them."""
    words = (f'{label}="{word}"' for label, word in sample.labels.items())
    return f"{sample.name}{{{','.join(words)}}}" if sample.labels else sample.name


def filled(expr: str) -> str:
    """An expression with its variables replaced."""
    for name in sorted(VARIABLES, key=len, reverse=True):
        expr = expr.replace(name, VARIABLES[name])
    return expr


def selected(expr: str) -> list[Selected]:
    """All selectors; raises `ValueError` where it is no PromQL."""
    return list(_walk(promql_parser.parse(expr), ()))


def _walk(node: Expr, within: tuple[str, ...]) -> Iterator[Selected]:
    match node:
        case VectorSelector():
            yield _of(node, within, ranged=False)
        case MatrixSelector():
            yield _of(node.vector_selector, within, ranged=True)
        case BinaryExpr():
            yield from _walk(node.lhs, within)
            yield from _walk(node.rhs, within)
        case Call():
            for argument in node.args:
                yield from _walk(argument, (*within, node.func.name))
        case AggregateExpr() | ParenExpr() | UnaryExpr() | SubqueryExpr():
            yield from _walk(node.expr, within)
        case _:
            return


def _of(node: VectorSelector, within: tuple[str, ...], *, ranged: bool) -> Selected:
    labels = {one.name: one.value for one in node.matchers.matchers}
    return Selected(str(node.name or labels.get("__name__", "")), labels, ranged, within)

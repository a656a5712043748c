"""One panel through Grafana's own builders: plugin, colours, words, columns and where a click leads.

Must not know which panels there are.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as look
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from overwatch.generate.boards.spec import Column, Look, Panel, Query, Step, Word
from overwatch.generate.boards.uids import RUN_VARIABLE, Board

Drawn: TypeAlias = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel | bargauge.Panel

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_LATEST: Final = "lastNotNull"


def draw_panel(panel: Panel, number: int) -> Drawn:
    """A panel; `number` is its id within the dashboard."""
    drawn = _plugin(panel)
    drawn.id(number).title(panel.title).description(panel.about).datasource(SOURCE)
    drawn.span(panel.width).height(panel.height).unit(panel.unit)
    drawn.targets([_query(query, panel.look, place) for place, query in enumerate(panel.queries)])
    if panel.steps:
        drawn.thresholds(_thresholds(panel.steps))
    if panel.words:
        drawn.mappings([_mapping(panel.words)])
    if panel.decimals is not None:
        drawn.decimals(panel.decimals)
    if panel.top is not None:
        drawn.min(0).max(panel.top)
    if panel.to is not None and panel.look is not Look.TABLE:
        drawn.data_links([_to(panel.to)])
    return drawn


def _plugin(panel: Panel) -> Drawn:
    match panel.look:
        case Look.NUMBER:
            return _number(panel)
        case Look.LINES:
            return _lines(panel)
        case Look.STATES:
            return _states(panel)
        case Look.TABLE:
            return _table(panel)
        case Look.BARS:
            return _bars()
        case _:
            assert_never(panel.look)


def _number(panel: Panel) -> stat.Panel:
    many = any("{{" in query.name for query in panel.queries) or len(panel.queries) > 1
    return (
        stat.Panel()
        .color_mode(look.BigValueColorMode.BACKGROUND if panel.words else look.BigValueColorMode.VALUE)
        .graph_mode(look.BigValueGraphMode.NONE if panel.words else look.BigValueGraphMode.AREA)
        .text_mode(look.BigValueTextMode.VALUE_AND_NAME if many else look.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs([_LATEST]))
        .color_scheme(_by_threshold())
    )


def _lines(panel: Panel) -> timeseries.Panel:
    styles = look.GraphThresholdsStyleMode
    limits = styles.DASHED_AND_AREA if panel.steps else styles.OFF
    drawn = (
        timeseries.Panel()
        .tooltip(
            common.VizTooltipOptions().mode(look.TooltipDisplayMode.MULTI).sort(look.SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(look.LegendDisplayMode.LIST)
            .placement(look.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .line_width(2)
        .fill_opacity(60 if panel.stacked else 8)
        .show_points(look.VisibilityMode.AUTO)
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(limits))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.stacked:
        drawn.stacking(common.StackingConfig().mode(look.StackingMode.NORMAL).group("A"))
    return drawn


def _states(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .show_value(look.VisibilityMode.AUTO if panel.words else look.VisibilityMode.NEVER)
        .merge_values(merge_values=True)
        .row_height(0.85)
        .line_width(0)
        .fill_opacity(80)
        .per_page(30)
        .legend(common.VizLegendOptions().show_legend(show_legend=False))
        .tooltip(common.VizTooltipOptions().mode(look.TooltipDisplayMode.SINGLE))
        .color_scheme(_by_threshold())
    )


def _bars() -> bargauge.Panel:
    return (
        bargauge.Panel()
        .display_mode(look.BarGaugeDisplayMode.BASIC)
        .orientation(look.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs([_LATEST]))
        .min(0)
        .color_scheme(_by_threshold())
    )


def _table(panel: Panel) -> table.Panel:
    drawn = table.Panel().color_scheme(_by_threshold())
    if panel.sort is not None:
        drawn.sort_by([common.TableSortByFieldState().display_name(panel.sort).desc(desc=True)])
    names = {f"Value #{_letter(place)}": query.name for place, query in enumerate(panel.queries)}
    shown = {**panel.keys, **names}
    organise = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(shown)},
        "renameByName": shown,
    }
    drawn.transformations(
        [
            model.DataTransformerConfig(id_val="merge", options={}),
            model.DataTransformerConfig(id_val="organize", options=organise),
        ]
    )
    for query, column in zip(panel.queries, panel.columns, strict=True):
        drawn.override_by_name(query.name, _column(column))
    if panel.to is not None and RUN_VARIABLE in panel.keys:
        title = panel.keys[RUN_VARIABLE]
        link = {"title": f"Open {panel.to.uid}", "url": _address(panel.to, f"${{__data.fields[{title!r}]}}")}
        drawn.override_by_name(title, [model.DynamicConfigValue(id_val="links", value=[link])])
    return drawn


def _column(column: Column) -> list[model.DynamicConfigValue]:
    found: list[tuple[str, object]] = [("unit", column.unit)]
    if column.decimals is not None:
        found.append(("decimals", column.decimals))
    if column.words:
        found.append(("mappings", [_mapping(column.words)]))
    if column.steps:
        steps = {"mode": "absolute", "steps": [_step(step) for step in column.steps]}
        found.append(("thresholds", steps))
    if column.steps or column.words:
        found.append(("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in found]


def _query(query: Query, kind: Look, place: int) -> prometheus.Dataquery:
    drawn = prometheus.Dataquery().datasource(SOURCE).expr(query.expr).ref_id(_letter(place))
    if kind is Look.TABLE:
        return drawn.instant().format(PromQueryFormat.TABLE)
    drawn.legend_format(query.name)
    if query.has_exemplars:
        drawn.exemplar(True)
    return drawn.instant() if kind is Look.BARS else drawn.range()


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _by_threshold() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _thresholds(steps: tuple[Step, ...]) -> dashboard.ThresholdsConfig:
    config = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    return config.steps([_step(step) for step in steps])


def _step(step: Step) -> model.Threshold:
    return model.Threshold(value=step.at, color=step.colour)


def _mapping(words: Mapping[int, Word]) -> model.ValueMap:
    return model.ValueMap(
        options={
            str(number): model.ValueMappingResult(text=word.text, color=word.colour, index=place)
            for place, (number, word) in enumerate(sorted(words.items()))
        }
    )


def _to(board: Board) -> dashboard.DashboardLink:
    address = _address(board, f"${{__field.labels.{RUN_VARIABLE}}}")
    return dashboard.DashboardLink(f"Open {board.uid}").url(address)


def _address(board: Board, run: str) -> str:
    """Where a click leads; time and data source go along."""
    return f"{board.path(run)}&${{datasource:queryparam}}&${{__url_time_range}}"

"""What our dashboards are made of: curves, numbers and tables over one data source, in one look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Final

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    FieldColor,
    QueryVariable,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
SEVERITY_COLORS: Final = {"info": "blue", "warning": "orange", "critical": "red"}
HEIGHT: Final = 8
"""Rows of Grafana's grid, which is 24 columns wide."""


def board(uid: str, title: str, description: str) -> Dashboard:
    """An empty dashboard over a Prometheus that the reader chooses."""
    source = DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    others = DashboardLink("Sentinel").type(DashboardLinkType.DASHBOARDS).tags(["sentinel"]).keep_time(keep_time=True)
    return (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["sentinel"])
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-6h", "now")
        .refresh("30s")
        .link(others)
        .with_variable(source)
    )


def choice(name: str, query: str, *, many: bool = False) -> QueryVariable:
    """What the reader chooses from the values of a label; where ``many``, all of them at first."""
    variable = (
        QueryVariable(name)
        .datasource(SOURCE)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )
    return (
        variable.multi(multi=True).include_all(include_all=True).current(VariableOption(text="All", value="$__all"))
        if many
        else variable
    )


def mark(name: str, expr: str, color: str) -> AnnotationQuery:
    """A line through every curve where ``expr`` has a value."""
    return AnnotationQuery().name(name).datasource(SOURCE).enable(enable=True).icon_color(color).expr(expr)


def curve(
    title: str,
    queries: Mapping[str, str],
    *,
    about: str,
    unit: str = "short",
    width: int = 8,
    logarithmic: bool = False,
    colors: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Values over time.

    Args:
        title: of the panel.
        queries: by the legend of their series.
        about: what it tells somebody on call.
        unit: Grafana's name of it.
        width: columns of the grid.
        logarithmic: whether the scale is.
        colors: by legend, where one means something.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
        .height(HEIGHT)
        .fill_opacity(8)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if logarithmic:
        panel.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    for legend, color in (colors or {}).items():
        panel.override_by_name(legend, [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})])
    for letter, (legend, expr) in zip(ascii_uppercase, queries.items(), strict=False):
        panel.with_target(_query(expr, ref_id=letter).legend_format(legend).range())
    return panel


def number(
    title: str,
    expr: str,
    *,
    about: str,
    unit: str = "short",
    width: int = 4,
    bad_from: float | None = None,
    name: str = "",
) -> stat.Panel:
    """One value, large.

    Args:
        title: of the panel.
        expr: its newest value is shown.
        about: what it tells somebody on call.
        unit: Grafana's name of it.
        width: columns of the grid.
        bad_from: from this value on it is red.
        name: shown instead of the value, such as ``{{phase}}``.
    """
    steps = [Threshold(value=None, color="text")]
    if bad_from is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=bad_from, color="red")]
    query = _query(expr, ref_id="A").instant()
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
        .height(4)
        .text_mode(BigValueTextMode.NAME if name else BigValueTextMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(BigValueColorMode.VALUE)
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(ThresholdsConfig().steps(steps))
        .with_target(query.legend_format(name) if name else query)
    )


def rows(
    title: str, queries: Mapping[str, str], *, about: str, hide: Sequence[str] = (), link: DynamicConfigValue
) -> table.Panel:
    """One line for each run.

    Args:
        title: of the panel.
        queries: by the heading of their column; each gives one value for each run.
        about: what it tells somebody on call.
        hide: columns that serve to make others.
        link: where the name of the run leads.
    """
    panel = table.Panel().title(title).description(about).datasource(SOURCE).span(24).height(10)
    letters = dict(zip(queries, ascii_uppercase, strict=False))
    for heading, expr in queries.items():
        panel.with_target(_query(expr, ref_id=letters[heading]).instant().format(PromQueryFormat.TABLE))
    renamed = {f"Value #{letter}": heading for heading, letter in letters.items()}
    hidden = {"Time": True} | {f"Value #{letters[heading]}": True for heading in hide}
    return (
        panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "renameByName": renamed})
        )
        .override_by_name("run", [link])
    )


def _query(expr: str, *, ref_id: str) -> Dataquery:
    return Dataquery().datasource(SOURCE).expr(expr).ref_id(ref_id)

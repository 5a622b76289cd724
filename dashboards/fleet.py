"""The dashboard of all runs: which one needs somebody, what was decided, what it cost, and is the daemon well."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from dashboards.panels import SEVERITY_COLORS, board, curve, mark, number, rows

NAMED = "on (instance, device) group_left (node) sentinel_device_info"
TO_THE_RUN = DynamicConfigValue(
    "links", [{"title": "this run", "url": "/d/sentinel-run?var-run=${__value.text}&${__url_time_range}"}]
)


def fleet_board() -> Dashboard:
    """The dashboard."""
    dashboard = board("sentinel-fleet", "Sentinel: all runs", "Who needs help, what was decided, what it cost.")
    dashboard.annotation(mark("Rollbacks", "delta(sentinel_run_segment[1m]) > 0", "orange"))
    for part in (_now, _decisions, _cost, _devices, _daemon):
        part(dashboard)
    return dashboard


def _now(dashboard: Dashboard) -> None:
    def in_phase(phase: str) -> str:
        return f'count(sentinel_run_phase{{phase="{phase}"}}) or vector(0)'

    for panel in (
        number("Training", in_phase("training"), about="Runs that were heard of in the last minute."),
        number("Silent", in_phase("silent"), about="Runs that said nothing for 60 s.", bad_from=1),
        number("Failed", in_phase("failed"), about="In the last hour.", bad_from=1),
        number(
            "Critical incidents",
            'sum(sentinel_incidents_open{severity="critical"}) or vector(0)',
            about="Not resolved.",
            bad_from=1,
        ),
        number("Held", "sum(sentinel_run_held)", about="Runs that a person holds: nothing is done to them."),
        number("Daemons on duty", "sum(sentinel_on_duty)", about="1 is right; the others stand by."),
    ):
        dashboard.with_panel(panel)
    dashboard.with_panel(
        rows(
            "Runs",
            {
                "is": "sum by (run, phase) (sentinel_run_phase)",
                "may": "sum by (run, mode) (sentinel_run_mode)",
                "step": "sum by (run) (sentinel_run_step)",
                "of": "sum by (run) (sentinel_run_max_steps)",
                "open incidents": "sum by (run) (sentinel_incidents_open) or sum by (run) (sentinel_run_step) * 0",
                "rollbacks": "sum by (run) (sentinel_rollbacks_total)",
                "lost steps": "sum by (run) (sentinel_run_lost_steps_total)",
                "loss": "sum by (run) (sentinel_run_loss)",
                "tokens/s": "sum by (run) (sentinel_run_tokens_per_second)",
            },
            about="Heard of in the last hour.",
            hide=("is", "may"),
            link=TO_THE_RUN,
        )
    )


def _decisions(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Incidents and decisions"))
    for panel in (
        curve(
            "Incidents per day",
            {"{{severity}}": "sum by (severity) (increase(sentinel_incidents_total[1d]))"},
            about="Begun in the 24 hours before.",
            colors=SEVERITY_COLORS,
        ),
        curve(
            "Decisions per hour",
            {"{{rung}}, {{outcome}}": "sum by (rung, outcome) (increase(sentinel_decisions_total[1h])) > 0"},
            about="Doing nothing is one; withheld: a limit, a hold or observe mode refused.",
        ),
        curve(
            "Rollbacks per hour",
            {"{{run}}": "sum by (run) (increase(sentinel_rollbacks_total[1h]))"},
            about="That trainers carried out.",
        ),
        curve(
            "Findings by symptom",
            {"{{symptom}}": "sum by (symptom) (sentinel_findings_total)"},
            about="Since the daemon's start.",
        ),
        curve(
            "Open incidents",
            {"{{run}}": "sum by (run) (sentinel_incidents_open) or sum by (run) (sentinel_run_step) * 0"},
            about="Not resolved.",
        ),
        curve(
            "Alerts per hour",
            {"{{channel}}, {{outcome}}": "sum by (channel, outcome) (increase(sentinel_alerts_total[1h]))"},
            about="Tries; failed ones are tried again.",
        ),
    ):
        dashboard.with_panel(panel)


def _cost(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Goodput"))
    lost = "sum by (run) (increase(sentinel_run_lost_steps_total[1h]))"
    gained = "sum by (run) (clamp_min(delta(sentinel_run_step[1h]), 0))"
    for panel in (
        curve(
            "Steps that count",
            {"{{run}}": f"{gained} / ({gained} + {lost})"},
            about="Of the steps trained in the hour before, those that were not given up; restarts' idle time apart.",
            unit="percentunit",
        ),
        curve("Lost steps per hour", {"{{run}}": lost}, about="Given up by rollbacks and restarts."),
        curve(
            "Lost time per hour",
            {"{{run}}": f"{lost} * on (run) sum by (run) (sentinel_run_step_seconds)"},
            about="Those steps at the pace of the newest one.",
            unit="s",
        ),
    ):
        dashboard.with_panel(panel)


def _devices(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Devices"))
    for panel in (
        curve(
            "Utilization",
            {"{{node}}": f"avg by (node) (sentinel_device_utilization_ratio * {NAMED})"},
            about="Mean of each node's devices.",
            unit="percentunit",
        ),
        curve(
            "Not answering",
            {
                "devices": "sum(1 - sentinel_device_up)",
                "collectors": 'sum(1 - up{job="sentinel-collect"})',
            },
            about="Devices that are lost or hang, and collectors that do not answer.",
        ),
        curve(
            "Errors per hour",
            {
                "uncorrected ECC": "sum(increase(sentinel_device_ecc_uncorrected_errors_total[1h]))",
                "critical Xid, in 15 minutes": "sum(sentinel:device_xid_errors:increase15m)",
            },
            about="Of all devices; which one, the alerts say.",
        ),
    ):
        dashboard.with_panel(panel)


def _daemon(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("The daemon"))

    def quantile(share: float, metric: str) -> str:
        return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket[$__rate_interval])))"

    for panel in (
        curve(
            "Observations",
            {
                "{{kind}}": "sum by (kind) (rate(sentinel_observations_total[$__rate_interval]))",
                "had waited": "sum(rate(sentinel_backlog_observations_total[$__rate_interval]))",
            },
            about="Taken into the log each second.",
            unit="ops",
        ),
        curve(
            "Answer time",
            {"median": quantile(0.5, "sentinel_ingest_seconds"), "p99": quantile(0.99, "sentinel_ingest_seconds")},
            about="From a batch to its answer; agents do not wait for it.",
            unit="s",
        ),
        curve(
            "Commit time",
            {"median": quantile(0.5, "sentinel_commit_seconds"), "p99": quantile(0.99, "sentinel_commit_seconds")},
            about="The database's disk; from 1 s on look at it.",
            unit="s",
        ),
        curve("Writer's queue", {"waiting": "sentinel_writer_waiting"}, about="Rising: the database is too slow."),
        curve(
            "Failures",
            {
                "alerts, {{channel}}": 'sum by (channel) (increase(sentinel_alerts_total{outcome="failed"}[1h]))',
                "the daemon's jobs": "sum(increase(sentinel_scheduler_errors_total[1h])) or vector(0)",
                "detectors": "sum(increase(sentinel_detector_errors_total[1h])) or vector(0)",
            },
            about="All of them are to be zero.",
        ),
        curve(
            "Memory",
            {"{{instance}}": 'process_resident_memory_bytes{job="sentinel"}'},
            about="Resident.",
            unit="bytes",
        ),
    ):
        dashboard.with_panel(panel)

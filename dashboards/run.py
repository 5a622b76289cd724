"""The dashboard of one run: is it well, what was done about it, and what would a rollback cost now."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.panels import SEVERITY_COLORS, board, choice, curve, mark, number

RUN: Final = '{run="$run"}'
DEVICES: Final = 'on (instance, device) group_left (node) sentinel_device_info{node=~"$node"}'
"""Joined with a metric of devices, this keeps those of the chosen nodes, and says which node each is on."""
DEVICE: Final = "{{node}}, {{device}}"


def run_board() -> Dashboard:
    """The dashboard."""
    dashboard = board(
        "sentinel-run", "Sentinel: one run", "Is the run well, what was done, what would a rollback cost."
    )
    dashboard.with_variable(choice("run", "label_values(sentinel_run_step, run)"))
    dashboard.with_variable(choice("node", f"label_values(sentinel_run_node{RUN}, node)", many=True))
    dashboard.annotation(mark("Rollbacks", f"delta(sentinel_run_segment{RUN}[1m]) > 0", "orange"))
    dashboard.annotation(mark("Critical incidents", 'sentinel_incidents_open{run="$run", severity="critical"}', "red"))
    for part in (_now, _training, _speed, _faults, _devices):
        part(dashboard)
    return dashboard


def _now(dashboard: Dashboard) -> None:
    left = f"(sentinel_run_max_steps{RUN} - sentinel_run_step{RUN}) * sentinel_run_step_seconds{RUN}"
    risk = f'(sentinel_run_step{RUN} - on (run) sentinel_run_checkpoint_step{{run="$run", state="known_good"}})'
    for panel in (
        number("Phase", f"sentinel_run_phase{RUN}", about="Silent: nothing heard for 60 s.", name="{{phase}}"),
        number("Step", f"sentinel_run_step{RUN}", about="Newest optimizer step.", unit="none"),
        number("Time left", left, about="Steps that are left, at the pace of the newest step.", unit="s"),
        number(
            "Open incidents",
            f"sum(sentinel_incidents_open{RUN}) or vector(0)",
            about="Not resolved; `sentinel incidents list` tells what was decided and why.",
            bad_from=1,
        ),
        number("Agent may", f"sentinel_run_mode{RUN}", about="observe: nothing is done to the run.", name="{{mode}}"),
        number("Held", f"sentinel_run_held{RUN}", about="1: a person holds it, nothing is done to it.", bad_from=1),
        number("Rollbacks", f"sentinel_rollbacks_total{RUN}", about="Carried out since the daemon's start."),
        number("Lost steps", f"sentinel_run_lost_steps_total{RUN}", about="Given up by rollbacks and restarts."),
        number("At risk", risk, about="Steps since the newest known-good checkpoint: a rollback gives them up."),
        number(
            "At risk, time",
            f"{risk} * on (run) sentinel_run_step_seconds{RUN}",
            about="The same at the pace of the newest step.",
            unit="s",
        ),
        number("Segment", f"sentinel_run_segment{RUN}", about="Rollbacks within the attempt.", unit="none"),
        number(
            "Dropped",
            f"sentinel_run_dropped_observations_total{RUN}",
            about="Observations that its agents threw away: what they told is not judged.",
            bad_from=1,
        ),
    ):
        dashboard.with_panel(panel)


def _training(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Training"))
    for panel in (
        curve("Loss", {"loss": f"sentinel_run_loss{RUN}"}, about="Of the newest step; a gap is NaN or infinite."),
        curve(
            "Gradient norm",
            {"gradient norm": f"sentinel_run_grad_norm{RUN}"},
            about="Before clipping; it often rises before the loss does.",
            logarithmic=True,
        ),
        curve("Learning rate", {"learning rate": f"sentinel_run_learning_rate{RUN}"}, about="Of the first group."),
    ):
        dashboard.with_panel(panel)


def _speed(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Speed"))
    wait, step = f"sentinel_run_data_wait_seconds{RUN}", f"sentinel_run_step_seconds{RUN}"
    for panel in (
        curve("Step time", {"step": step, "waiting for data": wait}, about="Of the newest step.", unit="s"),
        curve(
            "Waiting for data",
            {"share of the step": f"{wait} / {step}"},
            about="Near 1: the loader is too slow, the accelerators idle.",
            unit="percentunit",
        ),
        curve(
            "Throughput", {"tokens": f"sentinel_run_tokens_per_second{RUN}"}, about="Tokens a second.", unit="locale"
        ),
    ):
        dashboard.with_panel(panel)


def _faults(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Faults and checkpoints"))
    behind = f"sentinel_run_step{RUN} - on (run) group_right () sentinel_run_checkpoint_step{RUN}"
    for panel in (
        curve(
            "Open incidents",
            {"{{severity}}": f"sentinel_incidents_open{RUN} or sentinel_run_findings_total{RUN} * 0"},
            about="By severity.",
            colors=SEVERITY_COLORS,
        ),
        curve(
            "Findings",
            {"{{severity}}": f"increase(sentinel_run_findings_total{RUN}[$__rate_interval])"},
            about="What detectors claimed.",
            colors=SEVERITY_COLORS,
        ),
        curve("Since the checkpoint", {"{{state}}": behind}, about="Steps since the newest saved and known-good one."),
        curve("Segment", {"segment": f"sentinel_run_segment{RUN}"}, about="Rises by one with each rollback."),
        curve("Lost steps", {"lost": f"sentinel_run_lost_steps_total{RUN}"}, about="Given up by going back."),
        curve(
            "The agents' own troubles",
            {
                "dropped observations": f"increase(sentinel_run_dropped_observations_total{RUN}[$__rate_interval])",
                "errors kept from the training": f"increase(sentinel_run_agent_errors_total{RUN}[$__rate_interval])",
            },
            about="The training never sees them; Sentinel sees less.",
        ),
    ):
        dashboard.with_panel(panel)


def _devices(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Devices of the chosen nodes"))
    used = f"sentinel_device_memory_used_bytes / sentinel_device_memory_size_bytes * {DEVICES}"
    for panel in (
        curve(
            "Utilization",
            {DEVICE: f"sentinel_device_utilization_ratio * {DEVICES}"},
            about="Time in which a kernel ran; one below the others waits, or makes them wait.",
            unit="percentunit",
        ),
        curve("Memory", {DEVICE: used}, about="In use, of what the device has.", unit="percentunit"),
        curve(
            "Power",
            {DEVICE: f"sentinel_device_power_watts * {DEVICES}"},
            about="One that draws little while the others work is a straggler.",
            unit="watt",
        ),
        curve(
            "Temperature",
            {DEVICE: f"sentinel_device_temperature_celsius * {DEVICES}"},
            about="Of the chip.",
            unit="celsius",
        ),
        curve(
            "Clock",
            {DEVICE: f"sentinel_device_sm_clock_hertz * {DEVICES}"},
            about="Of the multiprocessors; falls when it is held down.",
            unit="hertz",
        ),
        curve(
            "Held down by",
            {"{{node}}, {{reason}}": f"sum by (node, reason) (sentinel_device_throttled * {DEVICES})"},
            about="Devices whose clocks are held down; gpu_idle is no fault.",
        ),
        curve(
            "Not answering",
            {"{{node}}": f"sum by (node) ((1 - sentinel_device_up) * {DEVICES})"},
            about="Devices that are lost, or whose driver hangs or fails.",
        ),
        curve(
            "Memory errors",
            {
                "{{node}}, {{device}}, uncorrected": f"sentinel_device_ecc_uncorrected_errors_total * {DEVICES}",
                "{{node}}, {{device}}, remap pending": f"sentinel_device_row_remap_pending * {DEVICES}",
                "{{node}}, {{device}}, remap failed": f"sentinel_device_row_remap_failed * {DEVICES}",
            },
            about="What rises within a run has hurt it; a failed remap asks for a new device.",
        ),
        curve(
            "Xid errors",
            {
                "{{node}}, {{device}}, Xid {{xid}}": f"sentinel_device_xid_errors_total * {DEVICES}",
                DEVICE: f"sentinel_device_up * 0 * {DEVICES}",
            },
            about="Since the collector's start; NVIDIA's catalogue says what each means.",
        ),
    ):
        dashboard.with_panel(panel)

"""Reads this node's accelerators, for Prometheus or once."""

from __future__ import annotations

import logging
import os
import signal
from typing import Annotated, Any, Final

import typer
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from rich.table import Table

from sentinel import log
from sentinel.cli.printing import AsJson, console, print_json
from sentinel.collectors.exposition import NodeMetrics
from sentinel.collectors.loop import INTERVAL_S, Device, Loop
from sentinel.domain.errors import DriverUnavailable, InvalidInput
from sentinel.protocol.codec import to_tree

logger = logging.getLogger(__name__)

PORT: Final = 8322
MOMENT_S: Final = 0.5
"""After which a reading that hangs is surely overdue."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def collect(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for a Prometheus elsewhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of /metrics; 0 takes any that is free.", min=0, max=65535)] = PORT,
    interval_s: Annotated[float, typer.Option(help="Seconds between two readings of a device.", min=0.1)] = INTERVAL_S,
    once: Annotated[bool, typer.Option("--once", help="Read each device once, print it and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read this node's GPUs through NVIDIA's driver and serve them at /metrics.

    With --once exit code 1 if a device does not answer.
    """
    loop = Loop(os.uname().nodename, interval_s=interval_s)
    if once:
        _once(loop, as_json=as_json)
    else:
        _serve(loop, host, port)


def _once(loop: Loop, *, as_json: bool) -> None:
    log.set_up("error", "text")
    loop.start()
    loop.wait(lambda: loop.is_complete, loop.overdue_s + MOMENT_S)
    problem, devices = loop.problem, loop.devices
    if not devices:
        raise DriverUnavailable(problem or f"the driver has not answered within {loop.overdue_s:.0f} s")
    if as_json:
        print_json([_tree(each) for each in devices])
    else:
        console.print(_table(devices))
    if any(each.health != "up" for each in devices):
        raise typer.Exit(1)


def _serve(loop: Loop, host: str, port: int) -> None:
    log.set_up("info", "text")
    signal.pthread_sigmask(
        signal.SIG_BLOCK, ENDING
    )  # before there are threads: they inherit it, and sigwait takes them
    registry = CollectorRegistry()
    registry.register(NodeMetrics(loop))
    ProcessCollector(registry=registry)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        problem = f"cannot listen on {host}, port {port}: {error.strerror}; end what listens there, or choose another"
        raise InvalidInput("--port", problem) from None
    loop.start()
    logger.info("metrics at http://%s:%d/metrics", host, server.server_port)
    logger.info("ending: %s", signal.Signals(signal.sigwait(ENDING)).name)
    loop.stop()
    server.shutdown()


def _tree(device: Device) -> dict[str, Any]:
    known = {} if device.sample is None else to_tree(device.sample)
    return {"index": device.index, "health": device.health, "problem": device.problem} | known


def _table(devices: list[Device]) -> Table:
    table = Table("device", "health", "name", "use", "memory", "power", "heat", "clock", "throttle", "errors", box=None)
    for each in devices:
        sample = each.sample
        row = (
            ["-"] * 8
            if sample is None
            else [
                sample.name or "-",
                _said(sample.utilization_ratio, "{:.0%}"),
                _said(sample.memory_used_bytes, "{:.3g} GB", 1e-9),
                _said(sample.power_watts, "{:.0f} W"),
                _said(sample.temperature_celsius, "{:.0f} °C"),
                _said(sample.sm_clock_hz, "{:.0f} MHz", 1e-6),
                ", ".join(sample.throttle) or "-",
                _said(sample.ecc_uncorrected_total, "{:.0f} ECC") + (", remap" if sample.remap_pending else ""),
            ]
        )
        table.add_row(str(each.index), each.problem or each.health, *row)
    return table


def _said(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value * scale)

"""What Grafana would draw: every query of every panel, asked of a real Prometheus that watches a real daemon."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sentinel.protocol.observations import AttemptStarted, Heartbeat, StepReport
from tests.daemons import Agent, serving
from tests.dashboards.boards import BOARDS, NODE, queries
from tests.nvml import Scenario
from tests.prometheus import Prometheus, running

DEPLOYED = Path(__file__).parents[2] / "deploy" / "prometheus"
TOKEN = "of-this-test"
WORN_OUT = {"0.ecc": 2, "1.throttle": 0x40}


@contextmanager
def _collecting(folder: Path, compiler: str) -> Iterator[tuple[Scenario, str]]:
    """A real collector in a process of its own, over devices that do as the test says; and where its metrics are."""
    devices = Scenario(folder, compiler, devices=2)
    command = [sys.executable, "-m", "sentinel.cli.main", "collect", "--port", "0", "--interval-s", "0.2"]
    process = subprocess.Popen(command, env=os.environ | devices.environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = next(filter(None, (re.search(r"http://([\d.:]+)/metrics", line) for line in process.stderr)))
        yield devices, found[1]
    finally:
        process.terminate()
        process.communicate()


def _config(daemon_url: str, collector: str, folder: Path) -> dict[str, Any]:
    """The deployed configuration, with this test's addresses and a shorter breath."""
    config = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    config["rule_files"] = [str(DEPLOYED / "rules.yml")]
    config["alerting"]["alertmanagers"] = []
    (daemon,) = [job for job in config["scrape_configs"] if job["job_name"] == "sentinel"]
    daemon["static_configs"] = [{"targets": [daemon_url.removeprefix("http://")]}]
    (nodes,) = [job for job in config["scrape_configs"] if job["job_name"] == "sentinel-collect"]
    nodes["file_sd_configs"] = [{"files": [str(folder / "nodes.json")]}]
    (folder / "nodes.json").write_text(json.dumps([{"targets": [collector]}]))
    daemon["authorization"] = {"credentials_file": str(folder / "token")}
    return config


class Told(Agent):
    """Tells all that an agent can tell of a step."""

    def reports(self, count: int, *, loss: float | None = None, grad_norm: float = 1.0) -> list[StepReport]:
        """Steps with their durations, learning rate and tokens."""
        numbers = {"lr": 1e-3, "step_s": 0.5, "data_wait_s": 0.1, "tokens": 4096}
        healthy = super().reports(count, loss=loss, grad_norm=grad_norm)
        return [StepReport(**{name: getattr(each, name) for name in each.__slots__} | numbers) for each in healthy]


def _live_through_an_incident(agent: Told, devices: Scenario, prometheus: Prometheus) -> None:
    """Trains, breaks, is rolled back and recovers, and a device fails; Prometheus sees each stage."""
    agent.tell(AttemptStarted(at=0.0, mode="act", rollback="forward", host=NODE, max_steps=10_000))
    agent.train(20)
    agent.checkpoint("good")
    agent.train(60)
    prometheus.until("sentinel_run_checkpoint_step{state='known_good'} == 20", lambda: agent.train(1))
    (order,) = agent.break_down().commands
    prometheus.until("ALERTS{alertname='SentinelCriticalIncident', alertstate='pending'}", lambda: None)
    agent.roll_back(order.id, 20)
    agent.tell(Heartbeat(at=0.0, step=agent.step, segment=agent.segment, dropped_total=3))
    prometheus.until("delta(sentinel_run_segment[1m]) > 0", lambda: agent.train(1))
    settled = "increase(sentinel_rollbacks_total[1m]) > 0 unless on (run) sentinel_incidents_open"
    prometheus.until(settled, lambda: agent.train(1))
    prometheus.until(f"sentinel_run_step == {agent.step}", lambda: None)
    prometheus.until("count(sentinel_device_power_watts) == 2", lambda: None)
    devices.set(WORN_OUT)
    devices.xid(1, 79)
    prometheus.until("count(ALERTS{alertname='SentinelGpuFault', alertstate='firing'}) == 2", lambda: None)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, Prometheus]]:
    """A run that had its incident, and the Prometheus that saw it."""
    program, compiler = shutil.which("prometheus"), shutil.which("gcc")
    if program is None or compiler is None:
        pytest.skip("prometheus or gcc is not on PATH: install it (.ci/run names the package)")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    with (
        serving(folder, token_file=folder / "token") as daemon,
        _collecting(folder, compiler) as (devices, collector),
        running(program, folder, _config(daemon.url, collector, folder)) as prometheus,
        Told(daemon.url, token=TOKEN) as agent,
    ):
        _live_through_an_incident(agent, devices, prometheus)
        yield agent, prometheus


@pytest.mark.real
def test_every_panel_shows_something(lived: tuple[Told, Prometheus]) -> None:
    """After a run with an incident each query of both dashboards has a series, and a number in it."""
    agent, prometheus = lived
    empty = []
    for query in [each for board in BOARDS.values() for each in queries(board)]:
        values = [float(series["value"][1]) for series in prometheus.query(query.about(agent.run))]
        if all(math.isnan(value) for value in values):
            empty.append(query)
    assert empty == []


@pytest.mark.real
def test_the_numbers_are_the_runs(lived: tuple[Told, Prometheus]) -> None:
    """What the panels of a run say of its step, its losses and its pace is what its agent told."""
    agent, prometheus = lived
    shown = {
        each.panel.partition(", ")[2]: float(series[0]["value"][1])
        for each in queries(BOARDS["run.json"])
        if (series := prometheus.query(each.about(agent.run)))
    }
    assert shown["Step"] == agent.step
    assert shown["At risk"] == agent.step - 20
    assert shown["At risk, time"] == (agent.step - 20) * 0.5
    assert shown["Time left"] == (10_000 - agent.step) * 0.5
    assert shown["Waiting for data"] == 0.2
    assert shown["Throughput"] == 8192
    assert shown["Dropped"] == 3


@pytest.mark.real
def test_the_devices_are_those_of_the_runs_node(lived: tuple[Told, Prometheus]) -> None:
    """Each panel of devices shows what the driver says of both, by node; on a node of others it shows nothing."""
    agent, prometheus = lived
    devices = [each for each in queries(BOARDS["run.json"]) if "sentinel_device_info" in each.expr]
    for query in devices:
        assert {each["metric"]["node"] for each in prometheus.query(query.about(agent.run))} == {NODE}, query
        assert prometheus.query(query.about(agent.run).replace(NODE, "elsewhere")) == [], query
    (power,) = [each for each in devices if each.panel.endswith(", Power")]
    assert [float(each["value"][1]) for each in prometheus.query(power.about(agent.run))] == [412.5, 412.5]


@pytest.mark.real
def test_the_marks_and_the_choices_of_the_dashboards_work(lived: tuple[Told, Prometheus]) -> None:
    """The list of runs, and the lines that a rollback and a critical incident draw, come from this Prometheus."""
    agent, prometheus = lived
    for variable in [each for each in BOARDS["run.json"]["templating"]["list"] if each["type"] == "query"]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        match = {"match[]": metric.replace("$run", agent.run)}
        assert prometheus.ask(f"label/{label}/values", **match) == [{"run": agent.run, "node": NODE}[variable["name"]]]
    for mark in BOARDS["run.json"]["annotations"]["list"]:
        expr = f"last_over_time(({mark['expr'].replace('$run', agent.run)})[1m:200ms])"
        assert prometheus.until(expr, lambda: None), mark["name"]


@pytest.mark.real
def test_the_deployed_rules_are_evaluated(lived: tuple[Told, Prometheus]) -> None:
    """Prometheus has no objection to any of them; that the incident's alert was pending, the run has waited for."""
    _, prometheus = lived
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert rules
    assert {rule["health"] for rule in rules} == {"ok"}

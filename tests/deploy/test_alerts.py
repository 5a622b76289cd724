"""The alerts that Prometheus raises about Sentinel."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from sentinel.detectors.xid import CRITICAL
from tests.dashboards.boards import NAME, SERIES
from tests.deploy.files import DEPLOY, ROOT, anchors, documents

PROMETHEUS = DEPLOY / "prometheus"
ALL = [rule for group in documents(PROMETHEUS / "rules.yml")[0]["groups"] for rule in group["rules"]]
RULES = [rule for rule in ALL if "alert" in rule]
every_rule = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


@every_rule
def test_an_alert_says_what_is_the_matter_and_what_to_do(rule: dict[str, Any]) -> None:
    """Each has a severity that Alertmanager routes, a summary, a description, and a heading in the runbook."""
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in anchors((ROOT / page).read_text())


def test_the_xid_errors_that_alert_are_those_that_are_critical() -> None:
    """Prometheus and the daemon's detector call the same Xid errors critical."""
    (recorded,) = [rule for rule in ALL if rule.get("record") == "sentinel:device_xid_errors:increase15m"]
    (numbers,) = re.findall(r'xid=~"([\d|]+)"', recorded["expr"])
    assert [int(number) for number in numbers.split("|")] == sorted(CRITICAL)


@every_rule
def test_an_alert_watches_metrics_that_there_are(rule: dict[str, Any]) -> None:
    """Every metric in its expression is in the daemon's table."""
    assert [name for name in NAME.findall(rule["expr"]) if name not in SERIES] == []


def test_every_alert_is_tested_both_ways() -> None:
    """The tests of promtool see each alert raised, and each critical one not raised too."""
    cases = [case for test in documents(PROMETHEUS / "rules_test.yml")[0]["tests"] for case in test["alert_rule_test"]]
    raised = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert raised == {rule["alert"] for rule in RULES}
    assert {rule["alert"] for rule in RULES if rule["labels"]["severity"] == "critical"} <= quiet


@pytest.mark.real
@pytest.mark.parametrize("command", ["check rules rules.yml", "test rules rules_test.yml"])
def test_promtool_is_content(command: str, require_program: Callable[[str], str]) -> None:
    """The rules are well formed, and do what their tests say."""
    checked = subprocess.run(
        [require_program("promtool"), *command.split()], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr

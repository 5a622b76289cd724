"""`sentinel scan`: what it says of a log, and that it says it without looking ahead."""

from __future__ import annotations

import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sentinel.cli.scan import scan_command, tree
from sentinel.cli.scanning import scan
from sentinel.protocol.observations import StepReport

APP = typer.Typer()
APP.command()(scan_command)


def _reports(losses: list[float], *, interval: int = 1) -> list[StepReport]:
    return [
        StepReport(at=float(row), step=(row + 1) * interval, loss=loss, grad_norm=1.0)
        for row, loss in enumerate(losses)
    ]


def _noise(count: int, level: float = 2.0, *, seed: int = 0) -> list[float]:
    source = random.Random(seed)
    return [level + source.gauss(0.0, 0.02) for _ in range(count)]


def _told(losses: list[float], *, interval: int = 1) -> dict[str, Any]:
    return tree("log", scan(_reports(losses, interval=interval)))


@pytest.mark.parametrize("interval", [1, 100])
def test_a_loss_that_stays_high_is_one_incident_and_one_rollback(interval: int) -> None:
    """Whether every step or every hundredth is logged: one incident, one rollback, to the last row before the onset."""
    told = _told([*_noise(200), *_noise(150, 4.0, seed=1)], interval=interval)
    (incident,) = told["incidents"]
    assert (incident["onset_step"], incident["detected_step"]) == (201 * interval, 201 * interval)
    (rollback,) = [each for each in told["decisions"] if each["action"] == "rollback"]
    assert rollback["target_step"] == (195 if interval == 1 else 199 * interval)  # what joined it began at 200
    assert "if saved there" in rollback["reason"]


def test_a_spike_that_returns_is_watched() -> None:
    """A spike that comes back is an incident, ends benign, and nothing would have been done."""
    told = _told([*_noise(200), 5.0, 4.0, 3.0, 2.5, *_noise(50, seed=1)])
    assert [each["verdict"] for each in told["incidents"]] == ["benign"]
    assert {each["action"] for each in told["decisions"]} == {"watch", "none"}


def test_nan_is_rolled_back_at_once() -> None:
    """A NaN loss and gradient norm is an incident of its first row."""
    reports = _reports(_noise(100))
    reports += [StepReport(at=100.0, step=101, loss=math.nan, grad_norm=math.nan)]
    told = tree("log", scan(reports))
    assert [(each["symptom"], each["detected_step"]) for each in told["incidents"]] == [("nonfinite", 101)]
    assert [(each["step"], each["action"]) for each in told["decisions"]] == [(101, "rollback")]


def test_a_resume_is_no_fault() -> None:
    """A log whose steps go back to where the loss was higher gives no incident."""
    descent = [3.0 + 6.0 * math.exp(-row / 100) + noise for row, noise in enumerate(_noise(600, 0.0))]
    first = _reports(descent)
    assert tree("log", scan([*first, *first[100:]]))["incidents"] == []


@settings(deadline=None, max_examples=40)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 2.1, 2.4, 4.0, 9.0, math.nan, math.inf, -1.0]), st.integers(1, 60)),
        min_size=1,
        max_size=10,
    ),
    cut=st.integers(1, 400),
    seed=st.integers(0, 3),
)
def test_a_longer_log_only_adds(parts: list[tuple[float, int]], cut: int, seed: int) -> None:
    """What is said of a log's beginning stands when the rest is known; of incidents only end and verdict may change."""
    losses = _noise(60, seed=seed)
    for level, count in parts:
        losses += _noise(count, level, seed=seed + 1)
    early, late = _told(losses[:cut]), _told(losses)
    for name in ("findings", "decisions"):
        assert late[name][: len(early[name])] == early[name]
    assert len(late["incidents"]) >= len(early["incidents"])
    for before, after in zip(early["incidents"], late["incidents"], strict=False):
        assert before | {"end_step": 0, "verdict": ""} == after | {"end_step": 0, "verdict": ""}


def _csv(folder: Path, losses: list[float]) -> Path:
    path = folder / "log.csv"
    path.write_text("step,loss\n" + "".join(f"{row},{loss}\n" for row, loss in enumerate(losses, start=1)))
    return path


def test_json_is_one_object_a_file(tmp_path: Path) -> None:
    """Two files give two lines, a file that cannot be read an error on the other stream and exit code 1."""
    path = _csv(tmp_path, [*_noise(100), *_noise(100, 4.0)])
    result = CliRunner().invoke(APP, ["--json", str(path), str(tmp_path / "absent.csv"), str(path)])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["file"], each["rows"]) for each in lines] == [(str(path), 200)] * 2
    assert set(lines[0]) == {"file", "rows", "findings", "incidents", "decisions"}
    assert "absent.csv" in result.stderr
    assert result.exit_code == 1


def test_the_terminal_shows_the_curve_and_what_would_have_been_done(tmp_path: Path) -> None:
    """Without options a plot and a table come out, with the rollback's target."""
    result = CliRunner().invoke(APP, [str(_csv(tmp_path, [*_noise(200), *_noise(150, 4.0)]))])
    assert result.exit_code == 0
    assert "█" in result.stdout
    assert "rollback at 236" in result.stdout


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    """The page holds curve and tables, loads nothing, and escapes what the log brings along."""
    page = tmp_path / "page.html"
    path = _csv(tmp_path, [*_noise(200), math.nan, *_noise(150, 4.0)]).rename(tmp_path / "<b>&.csv")
    assert CliRunner().invoke(APP, ["--html", str(page), str(path)]).exit_code == 0
    tags = _Tags()
    tags.feed(page.read_text())
    assert {"svg", "polygon", "table"} <= tags.tags
    assert "b" not in tags.tags
    assert all(link.startswith("#") for link in tags.links)
